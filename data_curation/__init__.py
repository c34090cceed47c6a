"""Raw text in, curated documents, tokenizer and Megatron shards out. A library: no Prefect import."""
