#pragma once

#include "models/yaml_section.hpp"

namespace millrace {

struct Package;

/// Compares the section `methods` of a model.yaml with what the package's task calls. Further methods may be declared;
/// nothing calls them. Throws PackageError with the first difference.
void check_methods(YamlSection section, const Package& package);

}  // namespace millrace
