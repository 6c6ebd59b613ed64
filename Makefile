# The commands for users and developers. `make help` lists them; tools/ and CMakePresets.json do the work.
JOBS ?= 2
PREFIX ?= $(HOME)/.local
export JOBS

.PHONY: help setup demo build test unit quick asan tsan lint format bench insight parity tiles-memory gpu-bundle model install demo-models demo-quality fresh clean

help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  JOBS=N              parallel jobs of compilers and tests (default 2)"
	@echo "  PREFIX=FOLDER       where make install puts the program (default ~/.local)"
	@echo "  MILLRACE_DEPS       folder of LibTorch and the Python set, shared by all clones (default ~/.cache/millrace)"
	@echo "  MILLRACE_CUDA       AUTO, ON or OFF: build for CUDA (default AUTO: if nvcc is found)"

setup:
	@tools/setup.sh core

demo: build ## install, build, draw 48 pictures, find their objects, print the report and where the results are
	@tools/demo.sh

build: setup ## install what is missing and build the program
	@tools/build.sh release millrace millrace_imgcodecs

test: ## install what is missing, build, check the style, run every test, also under sanitizers
	@tools/test.sh lint release asan tsan

unit: ## build the doctest programs without optimisation and run them: a quick check while you edit
	@tools/test.sh unit

quick: ## make test without the sanitizers
	@tools/test.sh lint release

asan: ## run the tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	@tools/test.sh asan

tsan: ## run the C++ tests under ThreadSanitizer, without LibTorch
	@tools/test.sh tsan

lint: ## check format, includes and scripts, and run clang-tidy
	@tools/test.sh lint

format: ## clang-format every source file in place
	@tools/setup.sh core check
	@tools/lint.sh --format

bench: ## run the short benchmarks
	@tools/setup.sh core python
	@tools/build.sh release
	@tools/bench.sh

insight: ## how often is the verdict right, and how far off are predictions? simulations, planted mistakes, real runs (over an hour; as root also slow disks)
	@tools/setup.sh core
	@tools/build.sh release bench_verdicts bench_predictions bench_reports bench_tuning millrace millrace_imgcodecs
	@build/release/bench/bench_verdicts --seed 30001 --pipelines 3000 --minimum 99
	@for mistake in wall events cores; do echo "planted: $$mistake"; build/release/bench/bench_verdicts --seed 30001 --pipelines 1000 --planted $$mistake --minimum 90; [ $$? -eq 1 ] || exit 1; done
	@echo "planted: launches"; build/release/bench/bench_verdicts --seed 30001 --pipelines 1000 --planted launches --minimum 99; [ $$? -eq 1 ]
	@build/release/bench/bench_predictions --seed 10001 --pipelines 300 --median 10 --coverage 90
	@build/release/bench/bench_reports --out build/insight/reports
	@build/release/bench/bench_tuning --within 5
	@/usr/bin/python3 -B bench/insight/real.py --minimum 18 --out build/insight/verdicts.json
	@/usr/bin/python3 -B bench/insight/real.py --what-if --out build/insight/what-if.json
	@/usr/bin/python3 -B bench/insight/estimate.py --minimum 20 --out build/insight/estimates.json
	@/usr/bin/python3 -B bench/insight/cost.py --out build/insight/cost.json

parity: ## compare packages of every family in full size with the original software (needs the test data, about 80 minutes)
	@tools/setup.sh core python
	@tools/build.sh release millrace millrace_imgcodecs
	@"$$(tools/setup.sh where)/python/bin/python" -B tests/models/parity_table.py build/release/apps/millrace build/parity

tiles-memory: ## does peak memory depend on a picture's height or a volume's depth? 60,000 x 60,000 pixels and 2,000 slices; label pyramids of 4 GB (half an hour)
	@tools/setup.sh core python formats
	@tools/build.sh release millrace millrace_imgcodecs millrace_tiff millrace_nifti io_sample_labels
	@MILLRACE_TILES_MEMORY=full MILLRACE_PROGRAM=build/release/apps/millrace tests/apps/with_python_set.sh "$$(tools/setup.sh where)" \
	  "$$PWD/tests/apps/tiles_large_test.py" LargePictures.test_peak_memory_does_not_depend_on_the_height \
	  LargeVolumes.test_peak_memory_does_not_depend_on_the_depth
	@MILLRACE_TILES_MEMORY=full MILLRACE_SAMPLE_LABELS=build/release/io/io_sample_labels tests/apps/with_python_set.sh "$$(tools/setup.sh where)" \
	  "$$PWD/tests/apps/label_pyramid_test.py"

gpu-bundle: ## pack program, tests and benchmarks for a machine with a GPU and PyTorch
	@tools/setup.sh core python
	@tools/gpu_bundle.sh

# Make exports variables of its command line, so a name with blanks or quotes reaches the program unchanged.
model: ## make model packages: WEIGHTS=yolov8n.pt [SEGMENTER=mobile_sam.pt] [OUT=FOLDER]
	@[ -n "$$WEIGHTS$$SEGMENTER" ] || { echo "model: no weights named; make model WEIGHTS=yolov8n.pt [SEGMENTER=mobile_sam.pt] [OUT=FOLDER]" \
	  "(models/export/README.md says which files)" >&2; exit 2; }
	@for file in "$$WEIGHTS" "$$SEGMENTER"; do [ -z "$$file" ] || [ -e "$$file" ] || { echo "model: $$file: no such file; fetch the weights first" \
	  "(models/export/README.md says where they come from)" >&2; exit 2; }; done
	@$(MAKE) --no-print-directory build
	@tools/setup.sh python
	@build/release/apps/millrace model $${OUT:+--out="$$OUT"} $${PHOTOGRAPH:+--photograph="$$PHOTOGRAPH"} $${IMGSZ:+--imgsz $$IMGSZ} \
	  $${NAMES:+--names="$$NAMES"} $${PRESET:+--preset="$$PRESET"} $${TRUST:+--trust} -- $${WEIGHTS:+"$$WEIGHTS"} $${SEGMENTER:+"$$SEGMENTER"}

install: build ## install the program and its recipes into PREFIX
	@cmake --install build/release --prefix "$(PREFIX)" > build/release/install.log 2>&1 \
	  || { echo "install: writing to $(PREFIX) failed (build/release/install.log says why); choose another folder: make install PREFIX=FOLDER" >&2; exit 1; }
	@echo "installed: $(PREFIX)/bin/millrace, its plug-ins in $(PREFIX)/lib/millrace, recipes and exporters in $(PREFIX)/share/millrace"
	@deps="$$(tools/setup.sh where)"; case "$$deps" in "$$HOME"/* | /home/* | /root/*) \
	  echo "models load LibTorch from $$deps/core: other users need the right to read it; MILLRACE_DEPS=FOLDER chooses another place" ;; esac
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "$(PREFIX)/bin is not in PATH: add it, or run $(PREFIX)/bin/millrace" ;; esac

demo-models: ## train the built-in models again, into build/demo-models
	@tools/setup.sh core python
	@tools/train_demo.sh

demo-quality: ## measure the built-in models on 300 held-out scenes
	@tools/setup.sh core python
	@tools/build.sh release millrace millrace_imgcodecs
	@"$$(tools/setup.sh where)/python/bin/python" models/demo/quality.py

fresh: ## test what a new user does, in a new Debian 12 (needs root)
	@tools/fresh.sh

clean: ## remove the build folders; the shared wheels stay
	rm -rf build
