"""Networks and their checkpoints: tensors in, tensors out; no scheduling, no KV storage."""
