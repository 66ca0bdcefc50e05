// What `laconic completion` and `laconic man` write, given to the programs that read it. Shells
// that are not installed are skipped; bash is everywhere.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

class Completion : public Workplace {
 protected:
  // Runs a script of the shell; "" when the shell is not there.
  std::string run(const std::string& shell, const std::string& script) const {
    const std::string path = "/usr/bin/" + shell;
    if (!fs::exists(path)) return "";
    write_text(folder_ / "script", script);
    ProcessSpec start = spec({});
    start.words = {path, "script"};
    const ProcessResult result = Process(start).wait();
    EXPECT_EQ(result.exit_code, 0) << to_text(result);
    EXPECT_EQ(result.err, "");
    return result.out;
  }

  std::string script_for(const std::string& shell) const {
    return expect_exit(0, {"completion", shell}).out;
  }

  // What bash would offer after these words, of which the last may be a beginning.
  std::string offers(const std::vector<std::string>& words) const {
    std::string line;
    for (const std::string& word : words) line += fmt::format(" '{}'", word);
    return run("bash", script_for("bash") + fmt::format("COMP_WORDS=({})\nCOMP_CWORD={}\n_laconic\n"
                                                        "printf '%s ' \"${{COMPREPLY[@]}}\"\n",
                                                        line, words.size() - 1));
  }
};

TEST_F(Completion, BashOffersVerbsOptionsAndValues) {
  write_text(folder_ / "mine.toml", "");
  fs::create_directory(folder_ / "models");
  const struct {
    std::vector<std::string> words;
    const char* offered;
  } cases[] = {
      {{"laconic", "tr"}, "train "},
      {{"laconic", "config", ""}, "check show "},
      {{"laconic", "train", "--max"}, "--max-restarts "},
      {{"laconic", "generate", "x", "--device", ""}, "cpu cuda cuda:0 "},
      {{"laconic", "generate", "x", "--tokenizer", "b"}, "bytes "},
      {{"laconic", "lab", "report", "--size", "q"}, "quality "},
      {{"laconic", "completion", ""}, "bash zsh fish "},
      {{"laconic", "codec", "show", "qu"}, "quantise "},
      {{"laconic", "schedule", "zb"}, "zb_v "},
      {{"laconic", "layout", "x", "--method", "2"}, "2d 2.5d "},
      {{"laconic", "train", "mi"}, "mine.toml "},
      {{"laconic", "export", "m", "mod"}, "models "},
      // Bash cuts words at : and =, and writes only the last piece.
      {{"laconic", "train", "preset", ":", "ac"}, "ac-sgd "},
      {{"laconic", "train", "--set", "mesh."}, "mesh.dp= mesh.order= mesh.pp= mesh.tp= "},
      {{"laconic", "train", "--set", "run.device", "="}, "cpu cuda cuda:0 "},
      {{"laconic", "train", "--set", "dp.gradient.method", "=", "po"}, "power_sgd "},
      {{"laconic", "train", "--set", "dp.gradient.codec", "=", "si"}, "sign "},
      {{"laconic", "train", "--bogus"}, " "},
  };
  for (const auto& c : cases)
    EXPECT_EQ(offers(c.words), c.offered) << fmt::format("{}", fmt::join(c.words, " "));
}

TEST_F(Completion, BashOffersEveryOptionThatHelpHas) {
  for (const char* verb : {"train", "prepare", "generate", "evaluate", "schedule", "layout"}) {
    const std::string offered = offers({"laconic", verb, "--"});
    const std::string help = expect_exit(0, {verb, "--help"}).out;
    for (std::size_t at = 0; (at = help.find("\n  --", at)) != std::string::npos; ++at) {
      const std::size_t end = help.find_first_of(" ,{\n", at + 5);
      const std::string option = help.substr(at + 3, end - at - 3);
      EXPECT_NE(offered.find(option + " "), std::string::npos) << verb << " " << option;
    }
  }
}

TEST_F(Completion, FishOffersTheSame) {
  const auto offered = [&](const std::string& line) {
    return run("fish", script_for("fish") + fmt::format("complete -C '{}'\n", line));
  };
  if (offered("laconic tr").empty()) GTEST_SKIP() << "fish is not installed";
  EXPECT_EQ(offered("laconic tr"), "train\ttrain a model as a configuration says\n");
  EXPECT_NE(offered("laconic generate x --device ").find("cuda\t"), std::string::npos);
  EXPECT_NE(offered("laconic config s").find("show\t"), std::string::npos);
  EXPECT_NE(offered("laconic codec show qu").find("quantise\t"), std::string::npos);
  EXPECT_NE(offered("laconic train preset:ac").find("preset:ac-sgd\t"), std::string::npos);
}

TEST_F(Completion, ZshTakesTheScript) {
  if (!fs::exists("/usr/bin/zsh")) GTEST_SKIP() << "zsh is not installed";
  const std::string out =
      run("zsh", "autoload -Uz compinit && compinit -u -D\n" + script_for("zsh") +
                     "\nprint -r -- $_comps[laconic] ${+functions[_laconic_lab_run]}\n");
  EXPECT_EQ(out, "_laconic 1\n");
}

TEST_F(Completion, AnUnknownShellIsRefused) {
  const ProcessResult result = expect_exit(2, {"completion", "tcsh"});
  EXPECT_NE(result.err.find("bash"), std::string::npos) << result.err;
}

TEST_F(Completion, TheManualPageHasEveryVerbAndNoWarning) {
  const std::string page = expect_exit(0, {"man"}).out;
  for (const char* part : {".TH LACONIC 1", ".SS train", ".SS lab run", "\\-\\-max\\-restarts",
                           "\\fBnone|auto|best\\fR|\\fIFOLDER\\fR", ".SH EXAMPLES"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  if (!fs::exists("/usr/bin/groff")) GTEST_SKIP() << "groff is not installed";
  write_text(folder_ / "laconic.1", page);
  ProcessSpec start = spec({});
  start.words = {"/usr/bin/groff", "-man", "-ww", "-Tutf8", "-z", "laconic.1"};
  const ProcessResult result = Process(start).wait();
  EXPECT_EQ(result.exit_code, 0) << to_text(result);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace laconic
