"""Loops over blocks, made loops over the elements of the blocks.

the whole                 one_by_one
steps                     block_steps, written_step, gathered, named_blocks
proofs                    block_laws, ended
"""
