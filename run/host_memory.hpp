#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace millrace {

/// Bytes of memory that this process may still take. It is what the system calls available, limited by the cgroups
/// (v1, v2) and by ulimit -v; nothing if the system does not tell.
/// `proc` and `mount` are the folders where procfs and cgroups are mounted.
std::optional<std::int64_t> available_memory(const std::string& proc = "/proc",
                                             const std::string& mount = "/sys/fs/cgroup");

/// Resident bytes of this process: now, and the highest since its start or since the peak was reset. Nothing if the
/// system does not tell.
std::optional<std::int64_t> resident_memory();
std::optional<std::int64_t> peak_memory();

/// How many lanes on the host may fit, at least one. It is an estimate, because only a call shows how much it takes.
/// Lanes and weights get half of `available`: the rest is for pictures, and for the system's cache of files.
/// `weights` are the bytes of all models, `largest` those of the largest one.
/// MobileSAM (39 MB of weights) takes 220 MB a lane. Large transformers take more: about 1.5 times their weights.
/// A detector takes less for each further picture of a batch.
int lanes_that_fit(std::int64_t available, std::int64_t weights, std::int64_t largest, int batch_size);

}  // namespace millrace
