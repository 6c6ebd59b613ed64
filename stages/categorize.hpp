#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/ops/finish_rows.hpp"
#include "stages/embed.hpp"

namespace millrace {

/// The most likely classes of a picture, best first. Empty if no class reaches the threshold.
struct Categories {
  std::vector<std::pair<int, double>> top;                ///< number and probability of the class
  std::shared_ptr<const std::vector<std::string>> names;  ///< by number of the class
};
/// Writes {"top": [[281, "tabby", 0.62451], ...]}.
void write_categories(const Categories& categories, JsonWriter& json);

/// Logits by number of the class: matrix * vector + bias.
/// `matrix` has a row of vector.size() numbers for each class.
/// If `bias` is true, one number for each class follows the rows.
std::vector<double> class_logits(std::span<const float> matrix, bool bias, std::span<const float> vector);

/// Probabilities by number of the class: activation(logits / temperature). Without an activation, `logits` as they are.
std::vector<double> class_probabilities(std::vector<double> logits, Activation activation, double temperature);

inline constexpr CounterInfo categorizer_calls{"categorizer_calls"};

/// Finds the most likely classes of whole pictures, with a classifier, or an embedder that has a matrix of classes.
/// Reads `model_inputs`. Writes a field that has the stage's name in the recipe.
/// Waits for the device once for each batch.
/// Classes of equal probability are in the order of their numbers.
/// Failures:
/// - non_finite: what the model returns for the picture is not finite
/// - model_failed: the picture makes the model call fail
class Categorize final : public LaneStage {
 public:
  static constexpr const char* name = "categorize";
  struct Options {
    std::string model;
    int top = 5;
    double threshold = 0;
    double temperature = 1;
    int exec_batch = 0;
    bool pad = false;
    void visit(OptionVisitor& v);
  };
  struct Own {
    explicit Own(std::string stage_name) : name(std::move(stage_name)) {}
    Own(const Own&) = delete;
    const std::string name;
    const Field<Categories> categories{name, write_categories};
  };
  static StageInfo info(const Options& options, const Own& own);

  Categorize(const Options& options, const StageContext& context, const Own& own);
  void run(Batch& batch) override;

 private:
  const Options options_;
  const StageContext& context_;
  const Own& own_;
  const StageModel model_;
};

}  // namespace millrace
