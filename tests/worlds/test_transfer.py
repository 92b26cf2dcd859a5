"""What travels to a rank and back arrives as it was, and shares nothing with what was sent."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.worlds import codec, transfer

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e8m0fnu,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of any dtype, shape and stride, with any bits."""
    dtype = draw(st.sampled_from(DTYPES))
    shape: list[int] = draw(st.lists(st.integers(0, 4), max_size=3))
    count = torch.Size(shape).numel()
    size = count * dtype.itemsize
    # A bool of other bits than these is none.
    bits = st.integers(0, 1 if dtype is torch.bool else 255)
    data: list[int] = draw(st.lists(bits, min_size=size, max_size=size))
    tensor = torch.tensor(data, dtype=torch.uint8).view(dtype).view(shape)
    transposed: bool = draw(st.booleans())
    return tensor.transpose(0, -1) if shape and transposed else tensor


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@given(tensors())
@example(torch.zeros(1, 2).t())  # Contiguous, of a stride that its shape does not tell.
@example(torch.zeros(2)[::2])  # One number, of a stride that says nothing.
@example(torch.zeros(4, 6)[:1, ::6])
def test_a_tensor_arrives_bit_for_bit(tensor: torch.Tensor) -> None:
    copy = transfer.loads(transfer.dumps(tensor))
    assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
    assert copy.stride() == tensor.stride()
    assert torch.equal(bits(copy), bits(tensor))
    decoded = codec.decode(codec.encode(tensor))
    assert (decoded.dtype, decoded.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(bits(decoded), bits(tensor))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


@pytest.mark.parametrize(
    "view",
    [
        torch._neg_view(torch.ones(3)),
        torch.ones(1, dtype=torch.complex64).mul(1j).conj().imag,
        torch.ones(2, 3, dtype=torch.complex64).mul(1j).conj().t(),
    ],
)
def test_a_view_that_computes_arrives_as_what_it_shows(view: torch.Tensor) -> None:
    for copy in (transfer.loads(transfer.dumps(view)), codec.decode(codec.encode(view))):
        assert (copy.dtype, copy.tolist()) == (view.dtype, view.tolist())
    assert transfer.loads(transfer.dumps(view)).stride() == view.stride()


def test_a_meta_tensor_arrives_as_one() -> None:
    sent = torch.empty(2, 3, dtype=torch.float16, device="meta").t()
    copy = transfer.loads(transfer.dumps(sent))
    assert copy.is_meta
    assert (copy.dtype, copy.shape, copy.stride()) == (sent.dtype, sent.shape, sent.stride())


@given(tensors())
def test_what_is_sent_twice_arrives_as_one(tensor: torch.Tensor) -> None:
    first, second = transfer.loads(transfer.dumps((tensor, tensor)))
    assert first is second


def test_a_copy_can_be_written_and_shares_nothing() -> None:
    sent = torch.zeros(2)
    copy = transfer.loads(transfer.dumps(sent))
    copy += 1
    assert sent.tolist() == [0, 0]
    assert copy.tolist() == [1, 1]


def test_parameters_and_what_asks_for_a_gradient_stay_what_they_are() -> None:
    parameter = transfer.loads(transfer.dumps(torch.nn.Parameter(torch.ones(2))))
    leaf = transfer.loads(transfer.dumps(torch.ones(2, requires_grad=True)))
    assert type(parameter) is torch.nn.Parameter
    assert parameter.requires_grad
    assert leaf.requires_grad
