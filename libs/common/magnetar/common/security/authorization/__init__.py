"""Authorization: grants as they are in metadata, and the decisions that follow from them."""
