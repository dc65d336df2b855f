"""A layer of Gated DeltaNet. The idea: operators with gradients for a sequence, a step kernel for one token more.

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2025: short convolutions with silu, queries and keys of length
1, the gated delta rule, and a norm of the heads with a gate.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pykittens.kernels.delta import gated_delta_rule_step
from pykittens.torch import causal_conv, gated_delta_rule

TAPS = 4  # of the short convolutions


class GatedDeltaLayer(nn.Module):
    """Maps x, (batch, n, model), to the same shape; with a cache it goes on after the positions seen before.

    cache: what an earlier call returned, None at the start of a sequence; a call with `keep=True` returns one.
    """

    def __init__(self, model: int, heads: int, d: int, width: int) -> None:
        super().__init__()
        self.heads, self.d, self.width = heads, d, width
        self.of_qkv = heads * (2 * d + width)
        self.enter = nn.Linear(model, self.of_qkv + heads * width, bias=False)
        self.gates = nn.Linear(model, 2 * heads, bias=False)
        self.taps = nn.Parameter(torch.randn(self.of_qkv, TAPS) / TAPS)
        self.rate = nn.Parameter(torch.empty(heads).uniform_(0, 16).log())
        self.bias = nn.Parameter(torch.empty(heads).uniform_(-6, -2))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.leave = nn.Linear(heads * width, model, bias=False)

    def forward(self, x: Tensor, cache: Any = None, keep: bool = False) -> Any:
        """The result, or (result, cache) if `keep`."""
        heads, d, width = self.heads, self.d, self.width
        rows, last = (None, None) if cache is None else cache
        mixed, gate = self.enter(x).split([self.of_qkv, heads * width], dim=-1)
        how: dict[str, Any] = {"initial_state": rows, "return_state": keep}
        mixed = causal_conv(mixed, self.taps, activation="silu", **how)
        mixed, rows = mixed if keep else (mixed, None)
        sizes = heads * d, heads * d, heads * width
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in mixed.split(sizes, -1))
        q, k = (functional.normalize(t.float(), dim=-1).to(x.dtype) for t in (q, k))
        # The gates are small, and what they keep is a product of many of them: in f32.
        beta, dt = self.gates(x).float().mT.split(heads, dim=1)
        step = functional.softplus(dt + self.bias.float()[:, None])
        gates = beta.sigmoid(), -self.rate.float().exp()[:, None] * step

        if x.shape[1] == 1 and last is not None and keep:
            some = (t[:, :, 0].contiguous() for t in (q, k, v, gates[0]))
            one = gated_delta_rule_step(*some, last, gates[1][:, :, 0].contiguous())
            y = one[:, :, None]  # and the state is replaced where it is
        else:
            y = gated_delta_rule(q, k, v, *gates, initial_state=last, return_state=keep)
            y, last = y if keep else (y, None)
        y = self.norm(y.transpose(1, 2)).flatten(-2) * functional.silu(gate)
        return (self.leave(y), (rows, last)) if keep else self.leave(y)


def main() -> None:
    """Train one step on a sequence, then generate after it, and compare with the whole sequence at once."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = GatedDeltaLayer(model=48, heads=2, d=32, width=32).to(device, torch.bfloat16)
    x = torch.randn(1, 72, 48, device=device, dtype=torch.bfloat16)
    layer(x).square().mean().backward()
    print("gradients:", all(p.grad is not None for p in layer.parameters()))
    with torch.no_grad():
        whole = layer(x)
        _, cache = layer(x[:, :70], keep=True)
        for i in range(70, 72):
            y, cache = layer(x[:, i : i + 1], cache, keep=True)
    print("largest difference:", (y[:, 0] - whole[:, -1]).abs().max().item())


if __name__ == "__main__":
    main()
