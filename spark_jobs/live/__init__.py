"""The state of a run while it is running: violations that no later evidence can undo, and the lag of each link.

window.py        the messages that are not complete yet, as frames; a step adds new rows and drops complete messages
early_checks.py  the checks that a step evaluates, and which of their findings are final
progress.py      what a step reports: counts, links, violations
follower.py      the steps of one run: what is known so far
following.py     polls a run, or lets Spark stream it, until the run ends; then the verdict is computed as usual
output.py        events as text and as JSON lines
"""
