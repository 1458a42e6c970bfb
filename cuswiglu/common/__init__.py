"""Devices, element types, files, caches and the call stack: what every other room may use."""
