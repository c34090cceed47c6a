"""Ways to start the ranks of a training job."""
