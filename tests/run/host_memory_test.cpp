#include "run/host_memory.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

constexpr std::int64_t mb = 1'000'000;

class Machine {
 public:
  void file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<std::int64_t> available() const {
    return available_memory(folder_.path() + "/proc", folder_.path() + "/cgroup");
  }

 private:
  const TemporaryFolder folder_;
};

TEST_CASE("available memory is that of the machine, or less in a cgroup of any level") {
  const Machine machine;
  CHECK_FALSE(machine.available());
  machine.file("proc/meminfo",
               "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n");
  CHECK_EQ(machine.available(), 20'000'000LL * 1024);
  machine.file("proc/self/cgroup", "0::/jobs/run\n");
  machine.file("cgroup/jobs/run/memory.max", "max\n");
  machine.file("cgroup/jobs/run/memory.current", "5000000000\n");
  CHECK_EQ(machine.available(), 20'000'000LL * 1024);
  machine.file("cgroup/jobs/memory.max", "8000000000\n");
  machine.file("cgroup/jobs/memory.current", "6000000000\n");
  machine.file("cgroup/jobs/memory.stat", "anon 1\nactive_file 500000000\ninactive_file 1000000000\n");
  CHECK_EQ(machine.available(), 3'500'000'000);
  machine.file("cgroup/jobs/run/memory.max", "5000000001\n");
  CHECK_EQ(machine.available(), 1);
}

TEST_CASE("version 1 of cgroups limits memory too") {
  const Machine machine;
  machine.file("proc/meminfo", "MemAvailable:   20000000 kB\n");
  machine.file("proc/self/cgroup", "4:memory:/box\n");
  machine.file("cgroup/memory/box/memory.limit_in_bytes", "4000000000\n");
  machine.file("cgroup/memory/box/memory.usage_in_bytes", "1500000000\n");
  machine.file("cgroup/memory/box/memory.stat",
               "active_file 1\ntotal_active_file 200000000\ntotal_inactive_file 300000000\n");
  CHECK_EQ(machine.available(), 3'000'000'000);
}

TEST_CASE("lanes get half of the memory, without the weights, and there is always one") {
  CHECK_EQ(lanes_that_fit(24'000 * mb, 50 * mb, 40 * mb, 1), 36);     // MobileSAM
  CHECK_EQ(lanes_that_fit(24'000 * mb, 2570 * mb, 2560 * mb, 1), 2);  // SAM ViT-H
  CHECK_EQ(lanes_that_fit(8'000 * mb, 2570 * mb, 2560 * mb, 1), 1);
  CHECK_EQ(lanes_that_fit(0, 50 * mb, 40 * mb, 1), 1);
  CHECK_EQ(lanes_that_fit(24'000 * mb, 50 * mb, 40 * mb, 16), 8);
}

}  // namespace
}  // namespace millrace
