"""The program on a CUDA runtime that computes nothing (tests/gpu/fake_cuda): what a run asks of a GPU, by number.

Kernels of LibTorch do nothing there, so results mean nothing. `cuda_test` compares those of Millrace's operations, here too.
The part `correct` of the GPU suite compares those of models, on a GPU.
"""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "apps"))
sys.path.insert(0, str(HERE / "fake_cuda"))

import program  # noqa: E402
from compiled_test import COMPILED, Wide, embedder  # noqa: E402
from libraries import product  # noqa: E402
from packages_test import DETECTOR_YAML, ModelCase  # noqa: E402

# The library whose CUDA half the program opens.
ENVIRONMENT = {"LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
LIMITS = HERE / "fake_cuda/limits.json"
BATCH, BOXES, EARLIER, LATER = 16, 10, 5, 8
WAITS = ("cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy", "cudaMemset")
NEVER = ("cudaMalloc", "cudaFree", "cudaHostAlloc by a lane", "launch on the default stream", "copy on the default stream", "product on the default stream",
         "convolution on the default stream", "cuDNN plan")
COPIES = ("copy to the device", "copy to the host", "copy on the device", "cudaMemsetAsync")


def operations(counts):
    """Kernels, matrix products, convolutions, copies, fills and graphs."""
    return sum(count for name, count in counts.items() if name in ("launch", "cuLaunchKernel", "cudaGraphLaunch", "cudnnBackendExecute", *COPIES) or product(name))


def waits(counts):
    return sum(counts.get(name, 0) for name in WAITS)


def faults(batch):
    """What is wrong with the counts of a batch: a sentence each."""
    expected = {"waits": (2, waits(batch)), "cudaEventSynchronize": (2, batch.get("cudaEventSynchronize", 0)),
                "copy to the device": (BATCH, batch.get("copy to the device", 0)), "copy to the host": (1, batch.get("copy to the host", 0))}
    expected |= {name: (0, batch.get(name, 0)) for name in NEVER}
    return [f"{name}: {found:g} instead of {count}" for name, (count, found) in expected.items() if found != count]


def counts_in(report):
    return {name: int(count) for count, name in (line.split("\t") for line in report.read_text().splitlines())}


class Waits(torch.nn.Module):
    """A detector that reads a number from the GPU."""

    def forward(self, images):
        out = torch.zeros([images.shape[0], 6, 84], dtype=images.dtype, device=images.device)
        return out + 1 if bool(images.max() > 2) else out


class FakeCudaCase(ModelCase):
    def pictures(self, count, boxes=BOXES):
        """A manifest of `count` pictures with boxes."""
        names = [program.write_picture(self.folder / f"pictures/{i}.jpg", 96, 64, seed=i) for i in range(4)]
        own = [[3 + 5 * i % 40, 2 + 3 * i % 20, 43 + 5 * i % 40, 32 + 3 * i % 20, 0] for i in range(boxes)]
        lines = [json.dumps({"path": str(names[i % 4]), "boxes": own}) + "\n" for i in range(count)]
        return self.write("m.jsonl", "".join(lines))

    def run_on_fake(self, count, *more, bytes_of_gpu=None, code=program.OK, lanes=1, name="out", detector=None, segmenter=None, engine="torchscript", device="cuda", env=None):
        """Runs `count` pictures. Returns the counts, by name."""
        report = self.folder / f"{name}.tsv"
        out = self.folder / f"{name}-{count}"
        environment = ENVIRONMENT | {"FAKE_CUDA_REPORT": str(report), "XDG_STATE_HOME": str(self.folder / f"{name}-state")} | ({"FAKE_CUDA_BYTES": str(bytes_of_gpu)} if bytes_of_gpu else {}) | (env or {})
        models = ["--segmenter", segmenter or program.package("mobile_sam")]
        if detector is not False:
            models += ["--detector", detector or program.package("yolov8n"), "--set", "detect.skip_with_boxes=no"]
        self.done = self.run_ok("--input", self.pictures(count), "--output", out, "--device", device, *models, "--engine", engine,
                                "--set", f"threads.lanes={lanes}", "--set", "gate.frames=32", *more,
                                code=code, env=environment)
        self.out = out
        return counts_in(report)

    def in_front(self, source):
        """The environment of a program whose calls reach these C functions before those of the fake libraries."""
        library = self.folder / "in_front.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-include", "dlfcn.h", "-o", library, "-x", "c", "-"], input=source.encode(), check=True)
        return {"LD_PRELOAD": str(library)}

    def check_limits(self, measured):
        limits = json.loads(LIMITS.read_text())
        self.assertEqual(measured, {name: limits[name] for name in measured}, f"more than before are a fault; if they are fewer now, lower the number in {LIMITS}")

    def batch(self, *more, **options):
        """The counts of one batch, in the middle of a run: what a longer run asks for in addition."""
        earlier, later = (self.run_on_fake(batches * BATCH, *more, name=f"{batches}-batches", **options) for batches in (EARLIER, LATER))
        self.earlier = earlier
        return {name: (later.get(name, 0) - earlier.get(name, 0)) / (LATER - EARLIER) for name in earlier.keys() | later.keys()}

    def compiled(self, package, *rows):
        """Compiles a package for a GPU. Returns the folder of the variant."""
        # The compiler's Python needs the fake libraries too, and Triton looks for the driver's.
        fake = Path(program.PROGRAM).resolve().parent
        environment = ENVIRONMENT | {"MILLRACE_PYTHON": sys.executable, "LD_PRELOAD": str(fake / "libcudart.so.13"), "TRITON_LIBCUDA_PATH": str(fake), "TRITON_CACHE_DIR": str(self.folder / "triton")}
        done = program.millrace("compile", package, "--device", "cuda", "--no-autotune", *rows, "--traceback", env=environment, timeout=600)
        self.assertEqual(done.code, program.OK, done)
        (variant,) = package.with_name(package.name + ".variants").iterdir()
        self.assertRegex(variant.name, f"^cuda-sm_90-(bf16|fp16)-fake_gpu-torch{torch.__version__.split('+')[0]}$")
        file = variant / "variant.yaml"
        file.write_text(file.read_text().replace("gate: ungated", "gate: passed"))  # results mean nothing here
        return variant


class FakeCuda(FakeCudaCase):
    def test_a_batch_asks_for_no_more_than_it_must(self):
        batch = self.batch()
        self.assertEqual(faults(batch), [])
        # What a batch never does, loading does: so these names are those of the runtime.
        self.assertEqual([name for name in NEVER if "product" not in name and "convolution" not in name and self.earlier.get(name, 0) == 0], [])
        # Its boxes come from a manifest, and the detector's boxes are still found: once a batch.
        for kernel in ("find_candidates", "keep_best"):
            self.assertEqual(sum(count for name, count in batch.items() if f"::{kernel}(" in name), 1, kernel)
        figures = program.report(self.out)
        start, lane = figures["start"], figures["start"]["slowest_lane"]
        self.assertGreater(min(start["streams_s"], start["planning_s"], *lane.values()), 0)
        self.assertLessEqual(start["planning_s"] + sum(lane.values()), figures["load_s"] + figures["warm_up_s"])
        # Loading copies each constant and waits for it. In the first calls, LibTorch compares weights of equal shape.
        start = {name: self.earlier.get(name, 0) - EARLIER * batch.get(name, 0) for name in WAITS if name != "cudaEventSynchronize"}
        measured = {"operations of a batch": operations(batch), "launches of a batch": batch["launch"], "waits at the start": waits(start)}
        weights = sum(len(torch.jit.load(Path(program.package(name)) / "model.ts").state_dict()) for name in ("yolov8n", "mobile_sam"))
        self.assertLessEqual(waits(start), 2 * weights)
        self.check_limits(measured)

    def test_lanes_and_devices(self):
        for device, lanes in (("cuda", 2), ("cuda", 3), ("cuda:0,0", 2)):
            with self.subTest(device=device, lanes=lanes):
                name = f"{device.replace(':', '')}-{lanes}"
                few = self.run_on_fake(20, lanes=lanes, device=device, name=f"few-{name}")
                few_batches = program.report(self.out)["device_calls"]["batches"]
                counts = self.run_on_fake(60, lanes=lanes, device=device, name=name)
                figures = program.report(self.out)
                batches = figures["device_calls"]["batches"]
                self.assertEqual((figures["items"]["ok"], figures["items"]["objects"]), (60, 600))
                self.assertEqual(figures["device_calls"]["waits_per_batch"], 2)
                self.assertGreater(batches, few_batches)
                self.assertEqual(waits(counts) - waits(few), 2 * (batches - few_batches), "LibTorch waits, which the program does not count")
                # Loading works on the default stream, and lanes never do.
                for what in (name for name in NEVER if name.endswith("default stream")):
                    self.assertEqual(counts.get(what, 0), few.get(what, 0), what)

    def test_precisions(self):
        for precision in ("fp32", "tf32", "bf16", "fp16"):
            with self.subTest(precision):
                counts = self.run_on_fake(20, "--precision", precision, name=precision)
                self.assertEqual(program.report(self.out)["items"]["ok"], 20)
                written = {"fp32": "<float>", "tf32": "<float>", "bf16": "<__nv_bfloat16>", "fp16": "<__half>"}[precision]
                self.assertGreaterEqual(sum(count for name, count in counts.items() if f"letterbox{written}" in name), 4)  # two batches, two models

    def test_a_gpu_with_less_memory_gets_smaller_calls(self):
        for boxes in (64, 160):
            calls = []
            for gigabytes in (1, 2, 3, 5, 8):
                with self.subTest(boxes=boxes, gigabytes=gigabytes):
                    counts = self.run_on_fake(32, "--set", f"segment.box_batch={boxes}", bytes_of_gpu=gigabytes << 30, name=f"{boxes}-{gigabytes}gb")
                    figures = program.report(self.out)
                    self.assertEqual(figures["items"]["ok"], 32)
                    failed = counts.get("out of memory", 0)
                    if gigabytes == 1:
                        self.assertGreater(failed, 0)  # also in calls of the planned size
                    elif gigabytes >= 5:
                        self.assertEqual(failed, 0)
                    else:  # before the run: LibTorch then frees what it keeps, and tries again
                        longer = self.run_on_fake(64, "--set", f"segment.box_batch={boxes}", bytes_of_gpu=gigabytes << 30, name=f"{boxes}-{gigabytes}gb-longer")
                        self.assertEqual(longer.get("out of memory", 0), failed)
                        figures = program.report(self.folder / f"{boxes}-{gigabytes}gb-32")
                    calls.append((figures["calls"]["encoder_calls"], figures["calls"]["decoder_calls"]))
            for made in zip(*calls):
                self.assertEqual(list(made), sorted(made, reverse=True), "more memory led to more calls")
                self.assertGreater(made[0], made[-1])
            self.assertEqual(calls[-1], (2, 2 * math.ceil(BATCH * BOXES / boxes)))

    def test_the_memory_of_a_large_encoder(self):
        """The form for GPUs stores no matrix of scores."""
        environment = ENVIRONMENT | {"LD_PRELOAD": str(Path(program.PROGRAM).resolve().parent / "libcudart.so.13")}
        done = subprocess.run([sys.executable, "-B", HERE / "fake_cuda/encoder_memory.py"], env=os.environ | environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        exported, changed = (int(line) / 1e9 for line in done.stdout.split())
        print(f"ViT-B, 16 pictures: {exported:.2f} GB as exported, {changed:.2f} GB in the form for GPUs")
        self.assertLess(changed, 4)
        self.assertGreater(exported, 4)

    def test_memory_of_another_process_is_not_free(self):
        calls, failed = {}, {}
        for gigabytes, ballast in ((8, 0), (1, 0), (8, 7)):
            counts = self.run_on_fake(32, bytes_of_gpu=gigabytes << 30, env={"FAKE_CUDA_BALLAST": str(ballast << 30)}, name=f"{gigabytes}-{ballast}gb")
            figures = program.report(self.out)
            self.assertEqual(figures["items"]["ok"], 32)
            failed[gigabytes, ballast] = counts.get("out of memory", 0)
            self.assertLessEqual(counts["peak MB of the device"], (gigabytes - ballast) << 10)
            calls[gigabytes, ballast] = (figures["calls"]["encoder_calls"], figures["calls"]["decoder_calls"])
        self.assertEqual(calls[8, 7], calls[1, 0])
        self.assertNotEqual(calls[8, 7], calls[8, 0])
        self.assertEqual((failed[8, 7], failed[8, 0]), (failed[1, 0], 0))

    def test_a_gpu_without_memory_is_refused(self):
        self.run_on_fake(4, bytes_of_gpu=64 << 20, code=program.ENVIRONMENT)
        self.assertIn("GPU 0: not even one picture fits into memory", self.done.err)

    def test_a_gpu_without_memory_for_the_inputs_of_a_call_gets_smaller_calls(self):
        """LibTorch keeps memory for each stream, so a lane has less than the plan measured."""
        for megabytes, code in ((72, program.OK), (70, program.ENVIRONMENT)):
            with self.subTest(megabytes):
                self.run_on_fake(2 * BATCH, "--set", "gate.slab=1M", "--set", "segment.box_batch=160", segmenter=program.package("sam_small"), detector=False,
                                 bytes_of_gpu=megabytes << 20, code=code, name=f"{megabytes}mb")
                self.assertNotIn("ulimit", self.done.err)
                if code == program.OK:
                    self.assertEqual(program.report(self.out)["items"]["ok"], 2 * BATCH)
                else:
                    self.assertIn("sam_small.pkg: ", self.done.err)
                    self.assertIn("out of memory", self.done.err)

    def test_planted_waits_are_found(self):
        package = self.make_package(Waits(), DETECTOR_YAML.replace("max_batch: 4", f"max_batch: {BATCH}"), "waits")
        found = faults(self.batch(detector=package))
        self.assertTrue(any(fault.startswith("waits: 3 ") for fault in found), found)
        self.assertTrue(any(fault.startswith("copy to the host: 2 ") for fault in found), found)

    def test_planted_work_on_the_default_stream_is_found(self):
        """As if LibTorch forgot the stream of the lane: for copies on the device, kernels, products and convolutions."""
        misplaced = self.in_front("""
            struct size { unsigned x, y, z; };
            int cudaMemcpyAsync(void* to, const void* from, unsigned long bytes, int kind, void* stream) {
              int (*const real)(void*, const void*, unsigned long, int, void*) = dlsym(RTLD_NEXT, "cudaMemcpyAsync");
              return real(to, from, bytes, kind, kind == 3 ? 0 : stream);
            }
            int __cudaLaunchKernel(void* kernel, struct size grid, struct size block, void** arguments, unsigned long shared, void* stream) {
              int (*const real)(void*, struct size, struct size, void**, unsigned long, void*) = dlsym(RTLD_NEXT, "__cudaLaunchKernel");
              return real(kernel, grid, block, arguments, shared, grid.x == 1 ? 0 : stream);
            }
            int cublasSetStream_v2(void* handle, void* stream) { return (void)handle, (void)stream, 0; }
            int cudnnSetStream(void* handle, void* stream) { return (void)handle, (void)stream, 0; }
            """)
        found = faults(self.batch(env=misplaced))
        self.assertEqual(sorted(fault.split(":")[0] for fault in found), [f"{kind} on the default stream" for kind in ("convolution", "copy", "launch", "product")], found)

    def test_each_count_that_must_not_be_is_a_fault(self):
        clean = {"cudaEventSynchronize": 2, "copy to the device": BATCH, "copy to the host": 1}
        self.assertEqual(faults(clean), [])
        for name in (*NEVER, *WAITS, *clean):
            found = faults(clean | {name: clean.get(name, 0) + 1})
            self.assertTrue(any(fault.startswith(f"{'waits' if name in WAITS else name}: ") for fault in found), (name, found))
        self.assertEqual(operations({"launch": 1, "cuLaunchKernel": 1, "cudaGraphLaunch": 1, "cudnnBackendExecute": 1, "cublasLtMatmul": 1, "cublasSetStream_v2": 1, "cudaMemsetAsync": 1}), 6)

    def test_libraries_count_on_the_streams_of_their_handles(self):
        """The driver's waits, allocations and copies count as those of the runtime."""
        folder, report = Path(program.PROGRAM).resolve().parent, self.folder / "counts.tsv"
        code = f"""if True:
            import ctypes
            runtime, cublas, lt, cudnn, driver = (ctypes.CDLL(f"{folder}/lib{{name}}", ctypes.RTLD_GLOBAL) for name in
                                                  ("cudart.so.13", "cublas.so.13", "cublasLt.so.13", "cudnn.so.9", "cuda.so.1"))
            stream, handle, convolver, block = (ctypes.c_void_p() for _ in range(4))
            runtime.cudaStreamCreate(ctypes.byref(stream))
            cublas.cublasCreate_v2(ctypes.byref(handle))
            cudnn.cudnnCreate(ctypes.byref(convolver))
            def work():
                cublas.cublasSgemm_v2(handle)
                cublas.cublasGemmStridedBatchedEx(handle)
                cudnn.cudnnBackendExecute(convolver, None, None)
            work()
            cublas.cublasSetStream_v2(handle, stream)
            cudnn.cudnnSetStream(convolver, stream)
            work()
            for on in (stream, None):
                lt.cublasLtMatmul(*[None] * 15, on)
                driver.cuLaunchKernel(*[None] * 8, on, None, None)
                driver.cuLaunchCooperativeKernel(*[None] * 8, on, None)
            assert driver.cuStreamQuery(stream) == 600  # not ready
            driver.cuStreamSynchronize(stream)
            assert driver.cuStreamQuery(stream) == 0
            driver.cuCtxSynchronize()
            for take, give in ((driver.cuMemAlloc_v2, driver.cuMemFree_v2), (driver.cuMemAllocHost_v2, driver.cuMemFreeHost)):
                take(ctypes.byref(block), ctypes.c_size_t(64))
                driver.cuMemcpyDtoD_v2(block, block, ctypes.c_size_t(8))
                give(block)
            """
        subprocess.run([sys.executable, "-c", code], env={"FAKE_CUDA_REPORT": str(report)}, check=True)
        counts = counts_in(report)
        expected = {"cublasSgemm_v2": 2, "cublasGemmStridedBatchedEx": 2, "cublasLtMatmul": 2, "product on the default stream": 3, "cudnnBackendExecute": 2,
                    "convolution on the default stream": 1, "cuLaunchKernel": 4, "launch on the default stream": 2, "cudaStreamSynchronize": 1, "cudaDeviceSynchronize": 1,
                    "cudaMalloc": 1, "cudaFree": 1, "cudaHostAlloc": 1, "cudaFreeHost": 1, "cudaMemcpy": 2, "copy on the default stream": 2}
        self.assertEqual({name: counts.get(name, 0) for name in expected}, expected)

    def test_a_planted_allocation_in_a_capture_is_found(self):
        """Without the relaxed mode, LibTorch's allocator may not take memory for a graph."""
        report = self.folder / "counts.tsv"
        strict = self.in_front("int cudaThreadExchangeStreamCaptureMode(int* mode) { return (void)mode, 0; }")
        done = program.millrace("profile", "--device", "cuda", "--input", self.pictures(4), "--segmenter", program.package("sam_small"), "--batches", "2", "--boxes", "1",
                                "--seconds", "0", "--compare", "graphs", env=ENVIRONMENT | strict | {"FAKE_CUDA_REPORT": str(report)}, timeout=300)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("its work cannot be captured as a CUDA graph", done.err)
        self.assertGreater(counts_in(report)["cudaMalloc during a capture"], 0)

    def test_a_profile_compares_calls_with_cuda_graphs(self):
        """After a plain call, a shape is captured once, with all of its operations. Then a call is one launch."""
        report, result = self.folder / "counts.tsv", self.folder / "profile.json"
        done = program.millrace("profile", "--device", "cuda", "--input", self.pictures(4), "--segmenter", program.package("sam_small"), "--batches", "2,4", "--boxes", "8",
                                "--seconds", "0", "--compare", "graphs,layout", "--json", result, env=ENVIRONMENT | {"FAKE_CUDA_REPORT": str(report)}, timeout=300)
        self.assertEqual(done.code, program.OK, done)
        rows = json.loads(result.read_text())["rows"]
        self.assertEqual([(row["layout"], row["graph"]) for row in rows[:4]], [(layout, graph) for layout in ("channels-last", "channels-first") for graph in (False, True)])
        self.assertEqual(len(rows), 3 * 4)
        self.assertTrue(all(row["state"] == "ok" and row["engine"] == "torchscript" for row in rows))
        self.assertIn("channels-last graph", done.out)
        counts = counts_in(report)
        # In each of two layouts: three shapes of the table, and an encoder and a decoder call that record real inputs.
        shapes, calls = (3 + 2) * 2, sum(row["calls"] for row in rows if row["graph"])
        self.assertEqual(counts["cudaStreamBeginCapture"], shapes)
        self.assertEqual((counts["cudaGraphInstantiate"], counts["cudaGraphExecDestroy"]), (shapes, shapes))
        self.assertGreaterEqual(counts["cudaGraphLaunch"], calls - shapes)
        self.assertGreater(counts["operations of graphs"], 20 * counts["cudaGraphLaunch"])

    def test_a_profile_of_a_run_with_cuda_graphs(self):
        words = ("profile", "--device", "cuda", "--input", self.pictures(4), "--segmenter", program.package("sam_small"), "--batches", "2", "--boxes", "1", "--seconds", "0",
                 "--set", "models.graphs=yes")
        result = self.folder / "profile.json"
        done = program.millrace(*words, "--json", result, env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.code, program.OK, done)
        self.assertTrue(all(row["graph"] for row in json.loads(result.read_text())["rows"]))
        done = program.millrace(*words, "--compare", "graphs", env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.code, program.USAGE, done)
        self.assertIn("models.graphs", done.err)

    def test_a_model_that_waits_is_no_cuda_graph(self):
        package = self.make_package(Waits(), DETECTOR_YAML, "waits")
        done = program.millrace("profile", "--device", "cuda", "--input", self.pictures(4), "--detector", package, "--segmenter", program.package("sam_small"), "--batches", "2",
                                "--boxes", "1", "--seconds", "0", "--compare", "graphs", "--set", "detect.skip_with_boxes=no", env=ENVIRONMENT, timeout=300)
        self.assertEqual(done.code, program.ENVIRONMENT, done)
        self.assertIn("forward [1, 3, 64, 64]: its work cannot be captured as a CUDA graph; a model that waits for its GPU is one reason", done.err)

    def test_a_compiled_decoder_has_our_kernel_of_upscaling(self):
        """A run calls it with boxes of 16 pictures and of fewer, in one call each."""
        package = Path(shutil.copytree(program.package("mobile_sam"), self.folder / "mobile_sam.pkg"))
        variant = self.compiled(package, "--rows", "--boxes", 160)
        library = variant / "decode_160.so"
        self.assertIn(b"upscaling_kernel", library.read_bytes())
        # Machines with other CPUs and the same GPU can use it: its host code needs AVX2, and no AVX-512.
        self.assertIn("cpu_flags: abm avx avx2 bmi1 bmi2 f16c fma movbe popcnt sse sse2 sse4_1 sse4_2 ssse3\n", (variant / "variant.yaml").read_text())
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True).stdout
        self.assertIn("%xmm0", code)
        self.assertNotIn("%zmm", code)
        self.assertNotRegex(code, r"%[xy]mm(1[6-9]|2\d|3[01])")
        all_boxes = ("--set", "segment.box_batch=160")
        batch = self.batch(*all_boxes, segmenter=package, engine="auto")
        self.assertEqual(faults(batch), [])
        self.assertGreater(batch["cuLaunchKernel"], 10)
        self.run_on_fake(BATCH + 1, *all_boxes, segmenter=package, engine="auto", name="rest")
        self.assertEqual(program.report(self.out)["calls"]["decoder_calls"], 2)
        self.assertEqual(program.report(self.out)["calls"]["decoder_slots"], 2 * 160)  # the second call is padded

    def test_compiled_models(self):
        """Code for a GPU is compiled here, and the program loads it and launches its kernels, on the stream of the lane."""
        package = Path(shutil.copytree(COMPILED / "sam_small.pkg", self.folder / "sam_small.pkg"))
        variant = self.compiled(package, "--rows", 1, BATCH, "--boxes", 16)
        batch = self.batch(segmenter=package, engine="auto")
        self.assertEqual(faults(batch), [])
        loads = {load["package"]: load.get("variant") for load in program.report(self.out)["models"]["loads"]}
        self.assertTrue(any(loaded.startswith(f"{variant.name} ") for loaded in loads.values()), loads)
        self.assertGreaterEqual(batch["cuLaunchKernel"], 2 * 10)  # two kernels or more in each of ten decoder calls
        # Lanes share the weights, and each has its own runner.
        self.run_on_fake(6 * BATCH, segmenter=package, engine="auto", lanes=3, name="3-lanes")
        self.assertEqual(program.report(self.out)["items"]["ok"], 6 * BATCH)
        self.assertEqual(program.report(self.out)["device_calls"]["waits_per_batch"], 2)
        # Compiled code only says that it failed. Where memory ran out, its calls are repeated in halves.
        without_memory = 0
        for megabytes in (72, 76, 78):
            self.run_on_fake(2 * BATCH, "--set", "gate.slab=1M", "--set", "segment.box_batch=64", segmenter=package, detector=False, engine="auto", bytes_of_gpu=megabytes << 20, name=f"{megabytes}mb")
            self.assertEqual(program.report(self.out)["items"]["ok"], 2 * BATCH, megabytes)
            without_memory += self.done.err.count("Exception in aoti_torch: CUDA out of memory")
        self.assertGreater(without_memory, 0)

    def test_libraries_share_weights(self):
        """Those of three row counts need less than twice the memory of one. While one is loaded, it has its own weights."""
        model = Wide().eval()
        package = embedder(self.folder, "wide", model)
        megabytes = sum(weight.numel() for weight in model.parameters()) * 2 >> 20  # in 16 bits
        recipe = self.write("recipe.yaml", "stages: [decode, preprocess, embed, encode]\n")
        program.write_pictures(self.folder / "in", 9, 40, 36)
        peaks = []
        for rows in ((1,), (1, 2, 4)):
            self.compiled(package, "--rows", *rows)
            report, output = self.folder / "counts.tsv", self.folder / f"out{len(rows)}"
            self.run_ok(recipe, "--input", self.folder / "in", "--output", output, "--device", "cuda", "--engine", "aoti", "--set", f"embed.model={package}",
                        "--set", "embed.of=picture", "--set", "threads.lanes=2", "--set", "batch.size=4", env=ENVIRONMENT | {"FAKE_CUDA_REPORT": str(report)})
            peaks.append(counts_in(report)["peak MB of the device"])
        self.assertGreater(megabytes, 20)
        self.assertLess(peaks[1] - peaks[0], 1.5 * megabytes, peaks)
        # A library does not say why it was not loaded.
        done = self.run_ok(recipe, "--input", self.folder / "in", "--output", self.folder / "small", "--device", "cuda", "--engine", "aoti", "--set", f"embed.model={package}",
                    "--set", "embed.of=picture", "--set", "batch.size=4", code=program.ENVIRONMENT, env=ENVIRONMENT | {"FAKE_CUDA_BYTES": str(megabytes << 20)})
        self.assertRegex(done.err, r"out of memory for the library \S+\.so: \d+ MiB of the GPU are free")


if __name__ == "__main__":
    program.main()
