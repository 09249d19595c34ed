"""Kernels compiled for GPUs that need not be there, and what comes out.

the whole                 inspect
what is compiled          arguments, device, job
compiled                  process, compile
what came out             code, unset
"""
