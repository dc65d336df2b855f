"""A layer of Based. The idea: attention of few features for all positions, whose memory does not grow.

Source: Arora et al., "Simple linear attention language models balance the recall-throughput tradeoff", 2024: queries
and keys of 16 elements, weights 1 + s + s^2 / 2, results divided by their sums.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pykittens.torch import based_attention


class BasedLayer(nn.Module):
    """Maps x, (batch, n, model), to the same shape; with a state it goes on after the positions seen before.

    state: what an earlier call returned, None at the start of a sequence; a call with `keep=True` returns one.
    """

    def __init__(self, model: int, heads: int, d: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.sizes = heads * d, heads * d, model
        self.enter = nn.Linear(model, sum(self.sizes), bias=False)
        self.leave = nn.Linear(model, model, bias=False)

    def forward(self, x: Tensor, state: Tensor | None = None, keep: bool = False) -> Any:
        """The result, or (result, state) if `keep`."""
        # Kernels read heads where they are, so nothing is copied.
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in self.enter(x).split(self.sizes, dim=-1)
        )
        how: dict[str, Any] = {"initial_state": state, "return_state": keep}
        y = based_attention(q, k, v, normalize=True, **how)
        y, state = y if keep else (y, None)
        y = self.leave(y.transpose(1, 2).flatten(-2))
        return (y, state) if keep else y


def main() -> None:
    """Train one step on a sequence, then generate after it, and compare with the whole sequence at once."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = BasedLayer(model=64, heads=2).to(device, torch.bfloat16)
    x = torch.randn(1, 72, 64, device=device, dtype=torch.bfloat16)
    layer(x).square().mean().backward()
    print("gradients:", all(p.grad is not None for p in layer.parameters()))
    with torch.no_grad():
        whole = layer(x)
        _, state = layer(x[:, :70], keep=True)
        for i in range(70, 72):
            y, state = layer(x[:, i : i + 1], state, keep=True)
    print("largest difference:", (y[:, 0] - whole[:, -1]).abs().max().item())


if __name__ == "__main__":
    main()
