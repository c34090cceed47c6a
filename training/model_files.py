"""Names of the files of a trained model, known to the trainer and to the export."""

META = "meta.json"


def shard_name(stage: int, shard: int) -> str:
    """Name of the file of one pipeline stage and tensor-parallel rank."""
    return f"stage-{stage:02d}-shard-{shard:02d}.safetensors"
