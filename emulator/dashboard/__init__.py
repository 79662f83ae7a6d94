"""The dashboard: one web page that shows a run live and injects faults into it.

    server    HTTP on the loopback interface: guard, token, routes
    observer  the latest status of the run, refreshed while a page asks for it
    requests  the gate of requests that change the run
    actions   those changes: the verbs of the command line
    page/     HTML, style sheet and scripts, sent as they are

It uses a run through the contract of runtimes, and shows the same JSON as the command line.
"""
