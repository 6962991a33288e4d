// Draws the charts that the page holds as JSON: each when it comes near the window, in the colours that the reader
// has asked of the browser.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse), (max-width: 40rem)");
  const everySeed = document.getElementById("every-seed");
  const plots = [...document.querySelectorAll(".plot")];
  const buttons = [...document.querySelectorAll("button[data-curve]")];
  const hidden = new Set();
  const drawn = new Set();
  const inks = {
    light: ["#1f6feb", "#d1550f", "#1a7f37", "#8250df", "#bf3989", "#8a6100", "#0e7490", "#cf222e", "#57606a", "#4d7c0f"],
    dark: ["#6cb2ff", "#ff9d5c", "#5fd17a", "#c4a1ff", "#ff8ac4", "#e3b341", "#4fd1e0", "#ff8182", "#adbac7", "#b5d45c"],
  };
  const dashes = ["solid", "dash", "dashdot", "longdash"];

  const ink = (number) => inks[dark.matches ? "dark" : "light"][number % 10];
  const dash = (number) => dashes[Math.floor(number / 10) % dashes.length];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function line(curve, x, y, width, more) {
    const point = x.length === 1 ? "markers" : "lines";
    return {
      x, y, type: "scatter", mode: point, showlegend: false, name: curve.name,
      line: { color: ink(curve.colour), width, dash: dash(curve.colour) }, marker: { color: ink(curve.colour), size: 8 }, ...more,
    };
  }

  function tracesOf(curve) {
    const unseen = { hoverinfo: "skip" };
    const traces = [];
    if (curve.low) {
      const edge = { ...unseen, mode: "lines" };
      traces.push(line(curve, curve.x, curve.low, 0, edge));
      traces.push(line(curve, curve.x, curve.high, 0, { ...edge, fill: "tonexty", fillcolor: ink(curve.colour) + "33" }));
    }
    const seeds = curve.seeds || [];
    if (seeds.length > 1 && (!curve.low || everySeed.checked)) {
      for (const [name, values] of seeds) {
        traces.push(line(curve, curve.x, values, 1, { name, opacity: 0.55, hovertemplate: "%{y:.5g}" }));
      }
    }
    for (const [name, x, values] of curve.parts || []) {
      const dotted = { name, hovertemplate: "%{y:.5g}", line: { color: ink(curve.colour), width: 1.3, dash: "dot" } };
      traces.push(line(curve, x, values, 1.3, dotted));
    }
    const between = curve.low && { customdata: curve.low.map((low, i) => [low, curve.high[i]]) };
    const hover = curve.low ? "%{y:.5g} [%{customdata[0]:.5g}, %{customdata[1]:.5g}]" : "%{y:.5g}";
    traces.push(line(curve, curve.x, curve.y, 2.2, { ...between, hovertemplate: hover }));
    return traces;
  }

  // Of one value throughout, which would be drawn with one above and one below, whatever its size.
  function flat(chart) {
    const values = chart.curves.flatMap((curve) => [...curve.y, ...(curve.low || []), ...(curve.high || [])]).filter(Number.isFinite);
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    return least === most && least !== 0 ? { range: [least - 0.5 * Math.abs(least), least + 0.5 * Math.abs(least)] } : {};
  }

  function layoutOf(chart) {
    const axis = { gridcolor: style("--rule"), linecolor: style("--rule"), zeroline: false, automargin: true };
    const transparent = "rgba(0,0,0,0)";
    return {
      autosize: true, margin: { l: 8, r: 8, t: 8, b: 8 }, paper_bgcolor: transparent, plot_bgcolor: transparent,
      font: { color: style("--ink"), family: "system-ui, sans-serif", size: 12 }, showlegend: false,
      xaxis: { ...axis, title: { text: "steps" }, tickformat: "~s", hoverformat: ",~r" },
      yaxis: { ...axis, title: { text: chart.y }, tickformat: "~g", ...flat(chart) },
      modebar: { bgcolor: transparent, color: style("--quiet"), activecolor: style("--ink") },
      hovermode: touch.matches ? "closest" : "x unified", dragmode: touch.matches ? false : "zoom",
      hoverlabel: { bgcolor: style("--panel"), bordercolor: style("--rule"), font: { color: style("--ink") }, namelength: 40 },
    };
  }

  function draw(plot) {
    const chart = charts[Number(plot.dataset.chart)];
    const traces = chart.curves.filter((curve) => !hidden.has(curve.colour)).flatMap(tracesOf);
    const options = { responsive: true, displaylogo: false, displayModeBar: !touch.matches && !plot.closest(".small"),
      showSendToCloud: false, plotlyServerURL: "",  // no button that would send the numbers anywhere
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    Plotly.react(plot, traces, layoutOf(chart), options);
    drawn.add(plot);
  }

  function again() {
    for (const button of buttons) {
      const number = Number(button.dataset.curve);
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      const stroke = button.querySelector("line");
      stroke.setAttribute("stroke", ink(number));
      stroke.setAttribute("stroke-dasharray", dash(number) === "solid" ? "none" : "6 3");
    }
    drawn.forEach(draw);
  }

  for (const button of buttons) {
    button.addEventListener("click", () => {
      const number = Number(button.dataset.curve);
      if (!hidden.delete(number)) hidden.add(number);
      again();
    });
  }
  if (everySeed) everySeed.addEventListener("change", again);
  dark.addEventListener("change", again);
  touch.addEventListener("change", again);
  addEventListener("beforeprint", () => plots.forEach(draw));
  again();
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => near.observe(plot));
})();
