// Modules for plugin_test.cpp; which one, the build says.
extern "C" {
#if defined(TEST_PLUGIN_GOOD)
extern const int laconic_plugin_interface;
const int laconic_plugin_interface = 7;
int laconic_plugin_entry() {
  return 42;
}
#elif defined(TEST_PLUGIN_OLD)
extern const int laconic_plugin_interface;
const int laconic_plugin_interface = 6;
int laconic_plugin_entry() {
  return 41;
}
#else
int something_else() {
  return 0;
}
#endif
}
