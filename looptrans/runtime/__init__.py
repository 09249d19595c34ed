"""Running emitted kernels: compile, verify, inspect. Only this folder imports torch or triton.

called from Python        compile, attention, attention_call, gradients, empty_rows
modules, where they run   load, cache, device, interpreter, threads
verify                    verify, verification, and the files called verify_
listings to compare with  reference, parted, summed, terms_kept
launches watched          traffic, traffic_watch
gradients to compare with the files called gradient_
inspect                   inspect, and the files called inspect_
bench                     bench, and the files called bench_
"""
