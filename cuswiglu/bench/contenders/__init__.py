"""Contenders: one module for each library that can take part; what is missing is told with why."""

from .base import Contender, Found, Runner, absent, joined

__all__ = ["Contender", "Found", "Runner", "absent", "joined"]
