"""What travels to a rank and back arrives as it was, and shares nothing with what was sent."""

import pickle

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.model.layout import Layout
from fixtures.ranks import transfer
from fixtures.ranks.errors import Status
from tests.ranks import programs

DTYPES = (
    torch.bool,
    torch.int32,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e8m0fnu,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of any dtype, shape and stride, with any bits: -0 and NaN among them."""
    dtype = draw(st.sampled_from(DTYPES))
    shape: list[int] = draw(st.lists(st.integers(0, 4), max_size=3))
    size = torch.Size(shape).numel() * dtype.itemsize
    # A bool of other bits than these is none.
    bits = st.integers(0, 1 if dtype is torch.bool else 255)
    data: list[int] = draw(st.lists(bits, min_size=size, max_size=size))
    tensor = torch.tensor(data, dtype=torch.uint8).view(dtype).view(shape)
    transposed: bool = draw(st.booleans())
    return tensor.transpose(0, -1) if shape and transposed else tensor


@given(tensors())
@example(torch.zeros(1, 2).t())  # Contiguous, of a stride that its shape does not tell.
@example(torch.zeros(2)[::2])  # One number, of a stride that says nothing.
@example(torch.arange(24.0).view(4, 6)[1:3, ::6])
@example(torch.ones(3).expand(2, 3))
@example(torch._neg_view(torch.ones(3)))
@example(torch.ones(2, 3, dtype=torch.complex64).mul(1j).conj().t())
def test_a_tensor_arrives_bit_for_bit(tensor: torch.Tensor) -> None:
    packed = transfer.dumps((tensor, tensor))
    for first, second in (transfer.loads(packed), transfer.loads_from_network(packed)):
        assert first is second
        assert (first.dtype, first.shape, first.stride()) == (
            tensor.dtype, tensor.shape, tensor.stride()
        )  # fmt: skip
        assert torch.equal(bits(first), bits(tensor))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg().reshape(-1)
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def test_a_meta_tensor_arrives_as_one() -> None:
    sent = torch.empty(2, 3, dtype=torch.float16, device="meta").t()
    copy = transfer.loads(transfer.dumps(sent))
    assert copy.is_meta
    assert (copy.dtype, copy.shape, copy.stride()) == (sent.dtype, sent.shape, sent.stride())


def test_a_copy_can_be_written_and_shares_nothing() -> None:
    sent = torch.zeros(2)
    copy = transfer.loads(transfer.dumps(sent))
    copy += 1
    assert (sent.tolist(), copy.tolist()) == ([0, 0], [1, 1])


def test_parameters_and_what_asks_for_a_gradient_stay_what_they_are() -> None:
    parameter = transfer.loads(transfer.dumps(torch.nn.Parameter(torch.ones(2))))
    leaf = transfer.loads(transfer.dumps(torch.ones(2, requires_grad=True)))
    assert type(parameter) is torch.nn.Parameter
    assert parameter.requires_grad
    assert leaf.requires_grad


@pytest.mark.parametrize(
    "value",
    [
        [1, (2.5, None), {"a", b"b"}, frozenset({3}), {(0, 1): True}],
        Layout(4, 2),
        Status.DIED,
        torch.bfloat16,
        programs.my_rank,
        Layout,
    ],
)
def test_what_is_ours_comes_over_a_network(value: object) -> None:
    assert transfer.loads_from_network(transfer.dumps(value)) == value


@pytest.mark.parametrize(
    "name", [("os", "system"), ("fixtures.ranks.forked", "os.system"), ("torch", "load")]
)
def test_nothing_else_comes_over_a_network(name: tuple[str, str]) -> None:
    # Of the protocol that takes a dotted name.
    packed = b"\x80\x04c%s\n%s\n." % (name[0].encode(), name[1].encode())
    with pytest.raises(pickle.UnpicklingError, match="cannot be sent to another node"):
        transfer.loads_from_network(packed)
