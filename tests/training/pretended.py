"""A device that is pretended: real numbers, kept by tensors that say that they lie elsewhere.

Torch's `meta` device lends its name, because torch runs it without a GPU, backward passes included. Every operation
that mixes tensors of the two devices is refused, as CUDA refuses it, and so is a view of such a tensor by NumPy.
What it cannot show: kernels that CUDA lacks, its streams, and its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
_aten = torch.ops.aten
_TO = tuple(getattr(_aten.to, name) for name in _aten.to.overloads())  # in inference mode
_TO_NUMBERS = (_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default)


class There(Tensor):
    """A tensor on the device; `inner` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> There:
        made: There = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Literals(TorchFunctionMode):
    """`torch.tensor` moves its numbers to their device before any other mode sees them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if func is torch.tensor else None
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


@contextmanager
def pretended() -> Iterator[None]:
    """While it is entered, tensors can be made on the device and moved to it, by this thread."""
    with _Operations(), _Literals():
        yield


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    there = [each for each in tensors if isinstance(each, There)]
    here = [each for each in tensors if not isinstance(each, There)]
    if func is _aten.copy_.default:  # between devices too
        _inner(args[0]).copy_(_inner(args[1]))
        return args[0]
    told = next((each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.device)), None)
    goes_there = bool(there) if told is None else told == DEVICE
    args, kwargs = tree_map(
        lambda each: torch.device("cpu") if isinstance(each, torch.device) else each, (args, kwargs)
    )
    if func in _TO_NUMBERS:
        goes_there = False
    if there and not (func is _aten._to_copy.default or func in _TO) and any(each.dim() for each in here):
        shapes = [tuple(each.shape) for each in here]
        raise AssertionError(f"{func} got tensors of two devices; those of the shapes {shapes} lie on the CPU")
    out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    known = {id(each.inner): each for each in there}  # what an operation in place returns

    def wrap(value: Any) -> Any:
        if not (goes_there and isinstance(value, Tensor)):
            return value
        return known[id(value)] if id(value) in known else There(value)

    return tree_map(wrap, out)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, There) else value
