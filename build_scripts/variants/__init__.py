"""The tables of kernels: a row is compiled to one cubin."""

from .base import AnyInstance
from .decode import DECODE_INSTANCES
from .tile import ABLATIONS, INSTANCES

__all__ = ["ABLATIONS", "ALL_INSTANCES", "DECODE_INSTANCES", "INSTANCES", "AnyInstance"]

ALL_INSTANCES: tuple[AnyInstance, ...] = (*INSTANCES, *DECODE_INSTANCES)
