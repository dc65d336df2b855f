"""The layers of examples/layers: results and gradients beside float64, and generation one position after another."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

N, MODEL = 70, 48


def recurrence(q, k, v, *, read, initial_state=None, return_state=False, **how):
    """Position after position in float64; `read` finds the state after one, and its result."""
    state = initial_state
    found = []
    for i in range(v.shape[2]):
        state, y = read(
            state, *(x[:, :, i] for x in (q, k, v)), *(x[:, :, i] for x in how.values())
        )
        found.append(y)
    out = torch.stack(found, dim=2)
    return (out, state) if return_state else out


def delta_of(q, k, v, beta, decay, **how):
    def read(state, q, k, v, beta, decay):
        state = torch.zeros(*k.shape, v.shape[-1]).double() if state is None else state.double()
        state = decay.exp()[..., None, None] * state
        missing = v - (k[..., None, :] @ state)[..., 0, :]
        state = state + (beta[..., None] * k)[..., None] * missing[..., None, :]
        return state, (q[..., None, :] @ state)[..., 0, :] * q.shape[-1] ** -0.5

    return recurrence(q, k, v, read=read, beta=beta.double(), decay=decay.double(), **how)


def based_of(q, k, v, *, normalize, **how):
    assert normalize

    def features(x):
        x = x * x.shape[-1] ** -0.25
        pairs = (x[..., None] * x[..., None, :]).flatten(-2) * 0.5**0.5
        return torch.cat([torch.ones_like(x[..., :1]), x, pairs], dim=-1)

    def read(state, q, k, v):
        v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        added = features(k)[..., None] * v[..., None, :]
        state = added if state is None else state + added
        y = (features(q)[..., None, :] @ state)[..., 0, :]
        return state, y[..., :-1] / y[..., -1:]

    return recurrence(q, k, v, read=read, **how)


def conv_of(x, taps, *, activation, initial_state, return_state):
    assert activation == "silu"
    assert (initial_state, return_state) == (None, False)
    x = functional.pad(x.mT, (taps.shape[1] - 1, 0))
    return functional.silu(functional.conv1d(x, taps[:, None], groups=len(taps)).mT)


def made(example, name):
    torch.manual_seed(0)
    module = example(f"layers/{name}")
    if name == "based":
        return module, module.BasedLayer(MODEL, 2).bfloat16()
    return module, module.GatedDeltaLayer(MODEL, heads=2, d=32, width=24).bfloat16()


@pytest.mark.parametrize("name", ["based", "gated_delta"])
def test_results_and_gradients_are_those_of_float64(example, name, monkeypatch):
    module, layer = made(example, name)
    exact = copy.deepcopy(layer).double()
    x = torch.randn(2, N, MODEL).bfloat16()
    weight = torch.randn(x.shape)
    y = layer(x)
    (y * weight).sum().backward()
    if name == "based":
        monkeypatch.setattr(module, "based_attention", based_of)
    else:
        monkeypatch.setattr(module, "gated_delta_rule", delta_of)
        monkeypatch.setattr(module, "causal_conv", conv_of)
    wanted = exact(x.double())
    (wanted * weight).sum().backward()
    pairs = [(y, wanted)]
    pairs += [(p.grad, q.grad) for p, q in zip(layer.parameters(), exact.parameters(), strict=True)]
    for found, other in pairs:
        assert (found - other).norm() <= 2**-5 * other.norm()


@pytest.mark.parametrize("name", ["based", "gated_delta"])
@pytest.mark.parametrize("at", [3, 66])
def test_it_goes_on_where_it_was_left(example, name, at):
    _, layer = made(example, name)
    x = torch.randn(1, N, MODEL).bfloat16()
    with torch.no_grad():
        whole, found, cache = layer(x), [], None
        for some in (x[:, :at], x[:, at : N - 2], x[:, N - 2 : N - 1], x[:, N - 1 :]):
            y, cache = layer(some, cache, keep=True)
            found.append(y)
    assert (torch.cat(found, dim=1) - whole).abs().max() <= 2**-6 * whole.abs().max()


@pytest.mark.parametrize("name", ["based", "gated_delta"])
def test_it_runs_as_a_program(example, name, capsys):
    example(f"layers/{name}").main()
    first, second = capsys.readouterr().out.splitlines()
    assert first == "gradients: True"
    assert float(second.split()[-1]) < 2**-6
