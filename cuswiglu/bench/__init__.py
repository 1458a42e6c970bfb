"""`cuswiglu bench`: every contender in every cell, what it comes to as tables, and plots.

A suite is one object in one file of `suites/`: its cells, contenders, columns, tables and plots,
and how it is measured. It is made of what the other rooms offer, the lowest first:

cells, record   a model's MLP at so many tokens; what is kept of a run
contenders/     who can take part, and the inputs that all share
report/         figures, columns, tables and plots of a record
run/            one cell measured; the machine; cell after cell
"""
