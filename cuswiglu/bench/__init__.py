"""`cuswiglu bench`: every contender in every cell, the paper's claims beside ours, plots.

cells -> contenders -> measure -> run -> record       on a GPU
record -> figures, claims -> tables, plots            anywhere, from the JSON
"""
