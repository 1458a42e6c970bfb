"""Contenders: one module for each library that can take part; what is missing is told with why."""

from .base import Contender, Found, InapplicableError, Runner, absent, joined, limited

__all__ = ["Contender", "Found", "InapplicableError", "Runner", "absent", "joined", "limited"]
