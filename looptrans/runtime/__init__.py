"""Running emitted kernels: compile, verify, inspect. Only this folder imports torch or triton.

Rooms import only what stands above them here, as pyproject.toml lays down; each has a map of its
own.

modules, where they run   running
a listing, executed       executed
gradients by torch        differentiated
compiled for any GPU      inspecting
held against the listing  verifying
timed                     benching
called from Python        compile, attention, attention_call, gradients
"""
