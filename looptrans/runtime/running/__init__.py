"""Emitted modules, and where they run.

modules                   load, cache
where they run            device, interpreter, threads
"""
