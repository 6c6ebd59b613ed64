#pragma once

#include "models/yaml_section.hpp"

namespace millrace {

struct Package;

/// Compares the section `methods` of a model.yaml with the methods that the package's task calls.
/// The section may declare further methods, which nothing calls.
/// Throws PackageError with the first difference.
void check_methods(YamlSection section, const Package& package);

}  // namespace millrace
