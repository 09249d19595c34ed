# Every target sets up .venv by itself; nothing outside this folder is changed.

BIN := .venv/bin
READY := .venv/.ready
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python

.DEFAULT_GOAL := help
.PHONY: help .venv demo test thorough check generated verify-all spills bench fuzz clean

help:
	@echo 'make demo        what looptrans does, shown on the listings in specs/'
	@echo 'make test        the tests'
	@echo 'make thorough    the tests with those that take longest'
	@echo 'make check       lint, format, types, layers'
	@echo 'make generated   write the kernels of specs/ into generated/'
	@echo 'make verify-all  every listing with every shape, head size and type, in the interpreter'
	@echo 'make spills      every kernel compiled for a GPU that is not there: none may spill'
	@echo 'make bench       on a GPU: attention beside what else there is, both passes'
	@echo 'make fuzz        random nests against the trace oracle, for as long as you like'
	@echo 'make clean       remove .venv, caches and build products'

.venv: $(READY)

$(READY): pyproject.toml
	@python=; for p in $(PYTHON) $(PYTHONS); do \
	    if $$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	        >/dev/null 2>&1; then python=$$p; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo 'looptrans needs Python 3.11 or newer with venv; say which: make PYTHON=/path/to/python' >&2; \
	    exit 1; \
	fi; \
	echo 'setting up .venv (once, a few minutes)' >&2; \
	$$python -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(READY)
	@set -e; \
	part() { printf '\n\n== %s\n' "$$1"; }; \
	run() { printf '\n$$ looptrans %s\n\n' "$$*"; $(BIN)/looptrans "$$@"; }; \
	part 'A listing: loops as on a whiteboard, read and never executed'; \
	run show specs/flash_forward.py; \
	part 'What it means, on random input'; \
	run run specs/flash_forward.py --sizes M=4,N=5,E=3,D=2; \
	part 'Which statements depend on which, and which loops may run in parallel'; \
	run report specs/flash_forward.py; \
	part 'The claims in the comments of the listing as printed: some are refuted (exit status 1)'; \
	run claims specs/flash_forward_as_printed.py || [ $$? -eq 1 ]; \
	part 'The dependence that forbids an interchange'; \
	run deps specs/stencil.py; \
	run check specs/stencil.py 'interchange(i, j)' || [ $$? -eq 1 ]; \
	part 'After a skew the interchange is legal, and this is the nest'; \
	run apply specs/stencil.py 'skew(j, i, 1); interchange(i, j)'; \
	part 'FlashAttention derived from three naive loops, every step with its certificate'; \
	run derive specs/attention_naive.py; \
	part 'The Triton kernel that follows'; \
	run emit specs/attention_naive.py; \
	part 'The backward pass, derived from the same loops: a listing again'; \
	run show specs/attention_naive.py --pass backward; \
	part 'Every step to it with its certificate, and the ways to run it'; \
	run derive specs/attention_naive.py --to backward; \
	part 'One of its kernels; generated/attention_naive_backward.py is the whole module, with autograd'; \
	kernel='/_backward_dQ_kernel(/,/tl.store/p'; \
	printf '\n$$ looptrans emit specs/attention_naive.py --pass both | sed -n %s\n\n' "'$$kernel'"; \
	$(BIN)/looptrans emit specs/attention_naive.py --pass both | sed -n "$$kernel"; \
	if $(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("triton"))'; then \
	    part 'Compared with the listing itself, executed in float64; without a GPU it is interpreted'; \
	    run verify specs/attention_naive.py; \
	    part 'Its gradients too, compared with those that torch finds for the listing'; \
	    run verify specs/attention_naive.py --pass backward --sizes M=33,N=17,E=16,D=8; \
	    part 'Compiled for a GPU that need not be there'; \
	    run inspect specs/attention_naive.py --pass both --target cuda:90; \
	else \
	    part 'Triton cannot be installed here: verify and inspect are left out'; \
	fi; \
	printf '\n\nWhere to go next: README.md; %s --help; and your own loops: %s\n' \
	    '$(BIN)/looptrans' '$(BIN)/looptrans report FILE.py'

# Many tests run looptrans in a process of its own, which must not compile it each time.
test: $(READY)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal --usual

thorough: $(READY)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# Those that are on the shelf in parts as well.
IN_PARTS := attention attention_gqa attention_lengths

# Listings that are refused say why and get no file; then the exit status is 1.
generated: $(READY)
	@$(BIN)/looptrans emit specs/*.py -o generated || [ $$? -eq 1 ]
	@$(BIN)/looptrans emit specs/*.py --pass backward -o generated || [ $$? -eq 1 ]
	@$(BIN)/looptrans emit $(IN_PARTS:%=specs/%.py) --split -o generated
	@$(BIN)/looptrans emit --check 2>/dev/null

verify-all: $(READY)
	@$(BIN)/python -m tests.verify_all

spills: $(READY)
	@$(BIN)/python -m benchmarks.spills

# Writes benchmarks/results/GPU.json and GPU.svg; without a GPU it says so and writes nothing.
BENCHED := attention attention_causal attention_window_left attention_softcap \
    attention_alibi attention_prefix attention_gqa attention_bias
OPTIONS := window_left=1024,softcap=30.0

bench: $(READY)
	@$(BIN)/looptrans bench $(BENCHED:%=specs/%.py) --pass both --dtype bf16 \
	    --sizes B=4,H=16,M=4096,N=4096,E=128,D=128,$(OPTIONS) \
	    --sizes B=1,H=16,M=16384,N=16384,E=128,D=128,$(OPTIONS) \
	    --output benchmarks/results --plot benchmarks/results

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz

clean:
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
