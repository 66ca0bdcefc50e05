#include "laconic/study/report_figure.hpp"

#include <algorithm>
#include <utility>

#include "laconic/lab/lab_spec.hpp"

namespace laconic {

namespace {

Curve curve_over(const std::vector<Tick>& ticks, const std::vector<Case>& cases,
                 const std::string& method, const std::function<Spread(const Case&)>& value) {
  Curve curve{method, {}};
  for (const Tick& tick : ticks) {
    const Case* one = find_case(cases, method, tick.label);
    const Spread spread = one ? value(*one) : Spread{};
    if (is_known(spread)) {
      curve.points.push_back({tick.x, spread.median, spread.least, spread.most});
    }
  }
  return curve;
}

}  // namespace

std::vector<Tick> rate_ticks(const std::vector<std::string>& rates) {
  double fastest = 0;
  for (const std::string& rate : rates) {
    fastest = std::max(fastest, static_cast<double>(parse_rate(rate).value_or(0)) / 1e6);
  }
  std::vector<Tick> ticks;
  for (const std::string& rate : rates) {
    const auto bits = parse_rate(rate);
    if (!bits) continue;  // not in a lab
    ticks.push_back(
        {*bits > 0 ? static_cast<double>(*bits) / 1e6 : 10 * std::max(fastest, 1.0), rate});
  }
  return ticks;
}

Figure figure_over_rates(const std::vector<Case>& cases, const std::vector<std::string>& methods,
                         const std::function<Spread(const Case&)>& value) {
  Figure figure;
  figure.x_label = "rate of each link";
  figure.log_x = true;
  figure.ticks = rate_ticks(rates_of(cases));
  for (const std::string& method : methods) {
    Curve curve = curve_over(figure.ticks, cases, method, value);
    if (!curve.points.empty()) figure.curves.push_back(std::move(curve));
  }
  return figure;
}

}  // namespace laconic
