#include "laconic/plan/plan_page.hpp"

#include <fmt/format.h>

#include <cmath>

#include "laconic/base/text.hpp"
#include "laconic/base/xml.hpp"

namespace laconic {

namespace {

constexpr const char* kStyle = R"(
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #1b1b1b; background: #fff }
h1 { font-size: 1.4em; margin-bottom: .2em } h2 { font-size: 1.1em; margin: 1.6em 0 .4em }
.note { background: #fff4d6; border-left: 4px solid #d99a00; padding: .4em .8em; margin: .8em 0 }
table { border-collapse: collapse; width: 100% } td, th { padding: .25em .6em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
td.text, th.text { text-align: left; white-space: normal } tbody tr { cursor: pointer } tr.chosen { background: #e2edfb }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em }
input[type=range] { width: 100% } output { font-weight: bold }
svg { max-width: 100%; height: auto } .bar { display: flex; height: 1.5em; background: #eee; margin: .15em 0 }
.bar span { display: block; overflow: hidden; white-space: nowrap; font-size: .8em; color: #fff; padding-left: .2em }
.legend span { margin-right: 1em }
)";

constexpr const char* kScript = R"(
const colours = ['#1f5fbf','#c2410c','#15803d','#7e22ce','#0e7490','#a16207','#be185d','#4d7c0f','#475569','#b91c1c'];
const kinds = ['parameters','gradients','optimiser','activations','references','buffers','program'];
const byId = id => document.getElementById(id);
const logs = data.rates.map(r => Math.log(r));
let chosen = 0;
function rateText(bits) { return bits >= 1e9 ? (bits/1e9).toPrecision(3) + ' Gbit/s' : (bits/1e6).toPrecision(3) + ' Mbit/s'; }
function bytesText(bytes) { return bytes >= 1e9 ? (bytes/1e9).toFixed(1) + ' GB' : (bytes/1e6).toFixed(0) + ' MB'; }
function secondsAt(plan, rate) {
  const x = Math.min(Math.max(Math.log(rate), logs[0]), logs[logs.length - 1]);
  let i = 0;
  while (i + 2 < logs.length && logs[i + 1] < x) ++i;
  const share = (x - logs[i]) / (logs[i + 1] - logs[i]);
  return Math.exp((1 - share) * Math.log(plan.at[i]) + share * Math.log(plan.at[i + 1]));
}
function order(rate) { return data.plans.map((p, i) => i).sort((a, b) => secondsAt(data.plans[a], rate) - secondsAt(data.plans[b], rate) || a - b); }
function drawTable(rate) {
  byId('plans').innerHTML = order(rate).map((i, place) => {
    const p = data.plans[i], s = secondsAt(p, rate);
    return `<tr data-plan="${i}" class="${i === chosen ? 'chosen' : ''}"><td>${place + 1}</td><td class="text"><span class="swatch" style="background:${colours[i % 10]}"></span>${p.name}</td>` +
      `<td>${s.toPrecision(3)} s</td><td>${Math.round(data.tokens / s).toLocaleString('en')}</td><td>${bytesText(p.needed)}${p.has ? ' of ' + bytesText(p.has) : ''}</td><td>${p.loss}</td><td class="text">${p.why}</td></tr>`;
  }).join('');
  for (const row of byId('plans').children) row.onclick = () => { chosen = +row.dataset.plan; draw(); };
}
function drawCurves(rate) {
  const w = 900, h = 340, left = 70, bottom = 40, top = 10;
  const speeds = data.plans.map(p => p.at.map(s => data.tokens / s)), all = speeds.flat();
  const lo = Math.log(Math.min(...all)), hi = Math.log(Math.max(...all)) + 0.05;
  const x = r => left + (w - left - 10) * (Math.log(r) - logs[0]) / (logs[logs.length - 1] - logs[0]);
  const y = v => top + (h - top - bottom) * (1 - (Math.log(v) - lo) / (hi - lo || 1));
  let s = '';
  for (let r = 1e6; r <= 1.001e11; r *= 10) s += `<line x1="${x(r)}" x2="${x(r)}" y1="${top}" y2="${h - bottom}" stroke="#ddd"/><text x="${x(r)}" y="${h - bottom + 18}" text-anchor="${r > 5e10 ? 'end' : 'middle'}" font-size="12">${rateText(r)}</text>`;
  for (let e = Math.ceil(lo / Math.LN10); e <= hi / Math.LN10; ++e) { const v = Math.pow(10, e); s += `<line x1="${left}" x2="${w - 10}" y1="${y(v)}" y2="${y(v)}" stroke="#ddd"/><text x="${left - 6}" y="${y(v) + 4}" text-anchor="end" font-size="12">${v >= 1000 ? (v / 1000).toLocaleString('en') + 'k' : v}</text>`; }
  speeds.forEach((line, i) => { s += `<polyline fill="none" stroke="${colours[i % 10]}" stroke-width="${i === chosen ? 4 : 1.8}" points="${line.map((v, k) => x(data.rates[k]) + ',' + y(v)).join(' ')}"/>`; });
  s += `<line x1="${x(rate)}" x2="${x(rate)}" y1="${top}" y2="${h - bottom}" stroke="#000" stroke-dasharray="5 4"/>`;
  s += `<text x="${left}" y="${h - 4}" font-size="12">rate of the slowest link; up: tokens per second, by formulas (both logarithmic)</text>`;
  byId('curves').innerHTML = `<svg viewBox="0 0 ${w} ${h}" style="width:100%">${s}</svg>`;
}
function drawMemory() {
  const p = data.plans[chosen], most = Math.max(p.has || 0, ...p.memory.map(m => m.reduce((a, b) => a + b, 0)));
  byId('memory').innerHTML = p.memory.map((m, place) => `<div>${p.memory.length > 1 ? 'stage ' + place : 'a rank'}: ${bytesText(m.reduce((a, b) => a + b, 0))}</div><div class="bar">` +
    m.map((b, k) => b > 0 ? `<span title="${kinds[k]} ${bytesText(b)}" style="width:${100 * b / most}%;background:${colours[k]}">${b / most > 0.08 ? kinds[k] : ''}</span>` : '').join('') + '</div>').join('') +
    '<p class="legend">' + kinds.map((k, i) => `<span><span class="swatch" style="background:${colours[i]}"></span>${k}</span>`).join('') + '</p>';
}
function draw() {
  const rate = Math.exp(+byId('rate').value);
  byId('rate-text').textContent = rateText(rate);
  drawTable(rate); drawCurves(rate); drawMemory();
  byId('chosen').textContent = data.plans[chosen].name;
  document.querySelectorAll('.picture').forEach((e, i) => { e.hidden = i !== chosen; });
}
const slider = byId('rate');
slider.min = logs[0]; slider.max = logs[logs.length - 1]; slider.step = (logs[logs.length - 1] - logs[0]) / 400;
const asked = new URLSearchParams(location.hash.slice(1));
slider.value = Math.log(+asked.get('rate') || data.now);
chosen = Math.min(+asked.get('plan') || 0, data.plans.length - 1);
slider.oninput = draw;
draw();
)";

std::string number_list(const std::vector<double>& numbers) {
  std::string text;
  for (const double n : numbers) text += fmt::format("{}{:.6g}", text.empty() ? "" : ",", n);
  return "[" + text + "]";
}

// A text in JSON that is also safe inside a script of HTML.
std::string script_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : xml_escaped(text)) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == '<')
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

std::string loss_text(const PlanAnswer& plan) {
  if (!plan.is_proven) return "unproven";
  return plan.loss.most <= 0 ? "0 %" : fmt::format("+{:.2g} %", plan.loss.loss);
}

std::string plan_data(const PlanAnswer& plan, const std::string& name) {
  std::string memory;
  for (const MemoryEstimate& m : plan.fit.by_place)
    memory += (memory.empty() ? "" : ",") +
              number_list({m.parameters, m.gradients, m.optimiser, m.activations, m.references,
                           m.buffers, m.program});
  return fmt::format(
      R"({{"name":{},"at":{},"needed":{:.6g},"has":{:.6g},"loss":{},"why":{},"memory":[{}]}})",
      script_text(name), number_list(plan.at_rates), plan.fit.needed, plan.fit.has,
      script_text(loss_text(plan)), script_text(plan.why), memory);
}

std::string rows_of_break_even(const PlanAnswers& answers) {
  std::string rows;
  for (const BreakEven& row : answers.break_even) {
    if (!row.why_not.empty()) continue;
    const std::string rate = row.bits_per_second <= 0          ? "never"
                             : std::isinf(row.bits_per_second) ? "at any rate"
                             : row.bits_per_second >= 1e9
                                 ? fmt::format("below {:.3g} Gbit/s", row.bits_per_second / 1e9)
                                 : fmt::format("below {:.3g} Mbit/s", row.bits_per_second / 1e6);
    rows += fmt::format(
        "<tr><td class=text>{}</td><td class=text>{}</td><td>{}</td><td>{:.3g}x</td>"
        "<td>{:.3g} s</td><td class=text>{}</td></tr>\n",
        name_in(kPolicyClassNames, row.of), xml_escaped(row.policy), rate, row.gain, row.seconds,
        xml_escaped(row.plan));
  }
  return rows;
}

// Policies that no plan here can have.
std::string rows_of_never(const PlanAnswers& answers) {
  std::string rows;
  for (const BreakEven& row : answers.break_even)
    if (!row.why_not.empty())
      rows += fmt::format(
          "<tr><td class=text>{}</td><td class=text>{}</td><td class=text>{}</td></tr>\n",
          name_in(kPolicyClassNames, row.of), xml_escaped(row.policy), xml_escaped(row.why_not));
  return rows;
}

std::string rows_of_what_if(const PlanAnswers& answers) {
  std::string rows;
  for (const WhatIf& row : answers.what_if)
    rows += fmt::format(
        "<tr><td class=text>{}</td><td>{:.3g} s</td><td>{:.3g}x</td><td class=text>{}</td></tr>\n",
        xml_escaped(row.change), row.seconds, answers.search.plans.front().seconds / row.seconds,
        xml_escaped(row.plan));
  return rows;
}

// Without the declaration, which is for files of their own.
std::string inner_svg(const std::string& svg) {
  const std::size_t begin = svg.find("<svg");
  return begin == std::string::npos ? "" : svg.substr(begin);
}

}  // namespace

std::string plan_page(const PlanAnswers& answers, const PlanPage& page) {
  std::string plans, pictures;
  for (std::size_t i = 0; i < answers.plans.size(); ++i) {
    plans += (i == 0 ? "" : ",") + plan_data(answers.plans[i], page.names[i]);
    pictures += fmt::format("<div class=picture hidden>{}</div>\n", inner_svg(page.pictures[i]));
  }
  const PlanAnswer& first = answers.plans.front();
  const double tokens = first.tokens_per_second * first.seconds;
  const std::string title = "Plans for " + xml_escaped(page.model);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{}</title><style>{}</style>"
      "</head><body>\n<h1>{}</h1>\n<p>{}</p>\n",
      title, kStyle, title, xml_escaped(page.hosts));
  html +=
      "<p class=note><b>Predicted</b>, not measured. Losses are what was measured with models of "
      "0.2 to 14 million parameters.</p>\n"
      "<h2>Rate of the slowest link: <output id=rate-text></output></h2>\n"
      "<input type=range id=rate aria-label=\"rate of the slowest link\">\n<div id=curves></div>\n"
      "<h2>Plans, the fastest at this rate first</h2>\n<table><thead><tr><th></th>"
      "<th class=text>plan</th><th>step</th><th>tokens/s</th><th>memory</th><th>loss</th>"
      "<th class=text>limited by, on the hosts as they are</th></tr></thead>"
      "<tbody id=plans></tbody></table>\n"
      "<h2>A step of: <span id=chosen></span></h2>\n";
  html += pictures + "<h2>Memory</h2>\n<div id=memory></div>\n";
  html +=
      "<h2>Where short messages pay</h2>\n<table><thead><tr><th class=text>messages</th>"
      "<th class=text>policy</th><th>faster than exact</th><th>here</th><th>step, by formulas</th>"
      "<th class=text>of the plan</th></tr></thead><tbody>\n" +
      rows_of_break_even(answers) + "</tbody></table>\n";
  if (const std::string never = rows_of_never(answers); !never.empty())
    html +=
        "<h2>What no plan here can have</h2>\n<table><thead><tr><th class=text>messages</th>"
        "<th class=text>policy</th><th class=text>since</th></tr></thead><tbody>\n" +
        never + "</tbody></table>\n";
  if (!answers.what_if.empty())
    html +=
        "<h2>What else would buy</h2>\n<table><thead><tr><th class=text>with</th><th>step</th>"
        "<th>speed</th><th class=text>plan</th></tr></thead><tbody>\n" +
        rows_of_what_if(answers) + "</tbody></table>\n";
  return html + fmt::format(
                    "<script>\nconst data = {{\"tokens\":{:.6g},\"now\":{:.6g},\"rates\":{},"
                    "\"plans\":[{}]}};{}</script>\n</body></html>\n",
                    tokens, answers.slowest_rate, number_list(answers.rates), plans, kScript);
}

}  // namespace laconic
