// Takes the place of a profiler: NVTX loads this library if NVTX_INJECTION64_PATH names it.
// It writes a line of JSON for each event to the file that MILLRACE_NVTX_LOG names.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Recorder {
  std::mutex mutex;
  std::FILE* file = std::fopen(std::getenv("MILLRACE_NVTX_LOG"), "a");
  std::map<const void*, std::string> domains;
  nvtxRangeId_t ranges = 0;
};

// Never destroyed: threads of the program may record events after statics are destroyed.
Recorder& recorder() {
  static auto* one = new Recorder;
  return *one;
}

void write(const char* event, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes, nvtxRangeId_t range) {
  Recorder& r = recorder();
  std::fprintf(r.file, R"({"event": "%s", "domain": "%s", "thread": %d, "range": %llu)", event,
               r.domains[domain].c_str(), static_cast<int>(gettid()), static_cast<unsigned long long>(range));
  if (attributes != nullptr) {
    std::fprintf(r.file, R"(, "name": "%s", "payload": %lld)", attributes->message.ascii,
                 static_cast<long long>(attributes->payload.llValue));
  }
  std::fputs("}\n", r.file);
  std::fflush(r.file);
}

nvtxDomainHandle_t create_domain(const char* name) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  auto* handle = reinterpret_cast<nvtxDomainHandle_t>(new char);
  r.domains[handle] = name;
  return handle;
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock(recorder().mutex);
  write("push", domain, attributes, 0);
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  const std::lock_guard lock(recorder().mutex);
  write("pop", domain, nullptr, 0);
  return 0;
}

nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard lock(recorder().mutex);
  write("start", domain, attributes, ++recorder().ranges);
  return recorder().ranges;
}

void end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  const std::lock_guard lock(recorder().mutex);
  write("end", domain, nullptr, range);
}

void name_thread(std::uint32_t thread, const char* name) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  std::fprintf(r.file,
               R"({"event": "thread", "thread": %u, "name": "%s"})"
               "\n",
               thread, name);
  std::fflush(r.file);
}

template <class Function>
void set(NvtxFunctionTable table, unsigned index, Function* function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

// NVTX looks for this name.
extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {  // NOLINT(readability-identifier-naming)
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr, core2 = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) == 0 ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size) == 0 || recorder().file == nullptr) {
    return 0;
  }
  set(core, NVTX_CBID_CORE_NameOsThreadA, name_thread);
  set(core2, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(core2, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(core2, NVTX_CBID_CORE2_DomainRangePop, pop);
  set(core2, NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(core2, NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}
