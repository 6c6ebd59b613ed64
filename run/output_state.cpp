#include "run/output_state.hpp"

namespace millrace {

std::optional<OutputState> read_output(const std::string& folder) {
  const PlanFiles plan(folder);
  const auto settings = plan.read_plan();
  if (!settings) return std::nullopt;
  const std::string hash = plan_hash(*settings);
  const auto headers = plan.read_headers(hash);
  OutputState state;
  state.segments = headers.size();
  for (const auto& header : headers) state.planned += header.items;
  state.end = plan.read_end(hash, headers);
  state.contents = read_contents(folder, hash, state.planned);
  return state;
}

}  // namespace millrace
