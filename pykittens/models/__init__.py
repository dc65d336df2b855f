"""Models: language models of the shape of Llama, their checkpoints, and the text that they write."""
