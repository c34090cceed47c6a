"""Raw text in; curated documents, tokenizer and Megatron shards out. Knows no Prefect."""
