"""Runs: a cell measured, the machine looked at, cell after cell kept."""
