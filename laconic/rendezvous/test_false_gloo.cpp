// For gloo_module_test.cpp: a library that exports functions under names of gloo, as libtorch from
// PyPI does, and tells when one is called. It knows no header of gloo: names suffice to be called.
#include <atomic>
#include <cstdlib>

namespace {

std::atomic<int> calls = 0;

// Whoever comes here has arguments of other types: there is no way back.
[[noreturn]] void called() {
  ++calls;
  std::_Exit(42);
}

}  // namespace

extern "C" {

int false_gloo_calls() {
  return calls;
}

#define FALSE_GLOO(name) \
  void name() {          \
    called();            \
  }
// gloo::transport::tcp::CreateDeviceAttr(gloo::transport::tcp::attr const&), called by our module
FALSE_GLOO(_ZN4gloo9transport3tcp16CreateDeviceAttrERKNS1_4attrE)
// gloo::Context::Context(int, int, int), the same
FALSE_GLOO(_ZN4gloo7ContextC2Eiii)
FALSE_GLOO(_ZN4gloo7ContextC1Eiii)
// gloo::transport::tcp::Loop::Loop(), called within libgloo
FALSE_GLOO(_ZN4gloo9transport3tcp4LoopC1Ev)
FALSE_GLOO(_ZN4gloo9transport3tcp4LoopC2Ev)
}
