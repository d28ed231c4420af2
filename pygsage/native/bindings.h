// The parts that bindings.cpp puts into the module.
#pragma once

#include <nanobind/nanobind.h>

void bind_layers(nanobind::module_& m);
