#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/options.hpp"

namespace millrace {

// The option groups of the run. The options of stages are in the headers of the stages.
// The names are those of recipes and of --set group.name=value.

struct InputOptions {
  static constexpr const char* name = "input";
  std::vector<std::string> paths;
  bool follow_dirs = false;
  bool nul_separated = false;
  int every = 1;
  int limit = 0;
  std::string sample = "100%";
  int seed = 0;
  std::string source = "files";
  void visit(OptionVisitor& v) {
    v.option("paths", paths, "folders, pictures, globs, text lists, CSV or JSONL manifests, or - for stdin");
    v.option("follow_dirs", follow_dirs, "follow links to folders");
    v.option("nul_separated", nul_separated, "names in text lists and on stdin end with NUL, not with a newline");
    v.option("every", every, "take every N-th picture", {1, 1e9});
    v.option("limit", limit, "take the first N pictures; 0: no limit", {0, 2e9});
    v.option("sample", sample, "take this share of the pictures, such as 1%, chosen by path and seed");
    v.option("seed", seed, "seed of the sample", {0, 2e9});
    v.option("source", source,
             "files, or memory: decode each picture once and reuse its pixels, to measure the other stages",
             Affects::run);
  }
};

struct OutputOptions {
  static constexpr const char* name = "output";
  std::string folder;
  std::vector<std::string> reduce;
  void visit(OptionVisitor& v);
};

struct ModelOptions {
  static constexpr const char* name = "models";
  std::string engine = "auto";
  std::string variants;
  std::int64_t budget = std::int64_t{4} << 30;
  bool graphs = false;
  void visit(OptionVisitor& v) {
    v.option("engine", engine,
             "auto, torchscript, aoti, or simulated:TABLE.yaml, which only waits for the times in the table; auto: "
             "aoti for packages that `millrace compile` compiled and checked for this machine");
    v.option("variants", variants, "folder with compiled variants; default: PACKAGE.variants and the user's cache",
             Affects::run);
    v.bytes("budget", budget,
            "memory for loaded packages; the least recently used are evicted first, and a larger package is refused",
            {}, Affects::run);
    v.option(
        "graphs", graphs,
        "on a GPU, repeat each model call of the same shape as a CUDA graph: one launch instead of hundreds; keeps "
        "more memory",
        Affects::run);
  }
};

struct BatchOptions {
  static constexpr const char* name = "batch";
  int size = 0;
  void visit(OptionVisitor& v) {
    v.option("size", size, "pictures in a batch; 0: one on the CPU, 16 on a GPU", {0, 1024});
  }
};

struct GateOptions {
  static constexpr const char* name = "gate";
  int frames = 0;
  std::int64_t memory = 0;
  std::int64_t slab = std::int64_t{64} << 20;
  void visit(OptionVisitor& v) {
    v.option("frames", frames,
             "maximum number of pictures in the pipeline; 0: four batches and two more for each lane (with a GPU: six "
             "batches), "
             "at least 16",
             {0, 1e6}, Affects::run);
    v.bytes("memory", memory,
            "memory for pixels and decoding (7/8) and for files (1/8); 0: two batches of gate.slab, at least 1G", {},
            Affects::run);
    v.bytes("slab", slab, "maximum bytes of a picture's decoded pixels; larger pictures are reduced while decoding",
            {3 * 1024, 4e9});
  }
};

struct ReadOptions {
  static constexpr const char* name = "read";
  int threads = 4;
  int ahead = 16;
  std::int64_t max_file = std::int64_t{1} << 30;
  void visit(OptionVisitor& v) {
    v.option("threads", threads, "threads that read files", {1, 256}, Affects::run);
    v.option("ahead", ahead, "maximum number of files that are read ahead of decoding", {1, 1e6}, Affects::run);
    v.bytes("max_file", max_file, "larger files fail as too_large", {1, 4e12});
  }
};

struct ThreadOptions {
  static constexpr const char* name = "threads";
  int workers = 0;
  int lanes = 0;
  int team = 0;
  void visit(OptionVisitor& v) {
    v.option("workers", workers, "threads that decode and encode; 0: a quarter of the cores, or all with a GPU",
             {0, 4096}, Affects::run);
    v.option("lanes", lanes, "lanes, which run the models; 0: as many teams as the cores allow, or three for each GPU",
             {0, 256}, Affects::run);
    v.option("team", team,
             "threads of a model call, fixed by the plan; 0: one up to 15 cores, then an eighth of them, at most 8",
             {0, 256});
  }
};

struct TraceOptions {
  static constexpr const char* name = "trace";
  std::string file;
  std::string capture;
  void visit(OptionVisitor& v) {
    v.option("file", file, "file for a trace of the run (.json), which ui.perfetto.dev shows; see docs/tracing.md",
             Affects::run);
    v.option("capture", capture, "range of pictures that a profiler captures, such as 100:200; see docs/tracing.md",
             Affects::run);
  }
};

struct EventOptions {
  static constexpr const char* name = "events";
  std::string file;
  void visit(OptionVisitor& v) {
    v.option("file", file, "file (.jsonl) or pipe for events of the run, for other programs; see docs/formats_runs.md",
             Affects::run);
  }
};

struct ServeOptions {
  static constexpr const char* name = "serve";
  std::string address;
  void visit(OptionVisitor& v) {
    v.option("address", address,
             "port, or address with port, where browsers see the run live, such as 8080 or 0.0.0.0:8080; see "
             "docs/live.md",
             Affects::run);
  }
};

struct MeasureOptions {
  static constexpr const char* name = "measure";
  bool enabled = true;
  void visit(OptionVisitor& v) {
    v.option("enabled", enabled,
             "no: measure nothing and give no verdict; only to find out what measuring costs (bench/insight/cost.py)",
             Affects::run);
  }
};

struct DeviceOptions {
  static constexpr const char* name = "device";
  std::string kind = "auto";
  std::string precision = "auto";
  std::string memory = "0.9";
  std::string cpu = "auto";
  void visit(OptionVisitor& v) {
    v.option("kind", kind, "auto, cpu, cuda, cuda:0,1 or cuda:all");
    v.option(
        "cpu", cpu,
        "CPU instructions for models: avx512, avx2 or sse4.1, for bf16 amx or avx512_bf16; every machine of a run "
        "must have them. auto: those of the plan; for a new plan, the highest level of this CPU for the precision");
    v.option(
        "precision", precision,
        "precision of models: fp32, tf32, bf16 or fp16, also by task, such as segment=bf16; a CPU has fp32, and bf16 "
        "with avx512_bf16 or amx. auto: fp32 on the CPU, fp16 on a GPU, where segmenters use bf16 if it has that");
    v.option("memory", memory, "memory of each GPU for the run: a share of the free memory, or bytes such as 8G",
             Affects::run);
  }
};

/// All groups, in the order in which they are shown.
struct RunOptions {
  InputOptions input{};
  OutputOptions output{};
  ModelOptions models{};
  DeviceOptions device{};
  ThreadOptions threads{};
  BatchOptions batch{};
  GateOptions gate{};
  ReadOptions read{};
  TraceOptions trace{};
  EventOptions events{};
  ServeOptions serve{};
  MeasureOptions measure{};

  template <class Visit>
  void each(const Visit& visit) {
    visit(input);
    visit(output);
    visit(models);
    visit(device);
    visit(threads);
    visit(batch);
    visit(gate);
    visit(read);
    visit(trace);
    visit(events);
    visit(serve);
    visit(measure);
  }
};

}  // namespace millrace
