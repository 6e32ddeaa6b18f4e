"""Triton kernels, each beside a torch twin of the same name in `twins`; the twins are the reference
and what a CPU runs. Launchers check nothing that their callers can be trusted with.
"""
