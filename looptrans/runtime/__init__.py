"""Running emitted kernels: compile, verify, inspect. Only this folder imports torch or triton."""
