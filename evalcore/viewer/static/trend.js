"use strict";
// A trend that answers to the mouse. This file is bundled with Vega; the picture that the server
// made stays until the chart is drawn, and for browsers without script.
(() => {
  // Pixels: when the legend goes below the plot.
  const NARROW = 640;
  const legendsOf = (spec) => spec.layer.flatMap((layer) =>
    Object.values(layer.encoding ?? {}).map((channel) => channel.legend).filter(Boolean));

  // Texts of data become text nodes only.
  const tooltip = (box) => (_, event, __, value) => {
    box.replaceChildren();
    box.hidden = !value || typeof value !== "object";
    if (box.hidden) return;
    for (const [name, text] of Object.entries(value)) {
      if (text === null || text === "") continue;
      const term = document.createElement("dt");
      const shown = document.createElement("dd");
      term.textContent = name;
      shown.textContent = String(text);
      box.append(term, shown);
    }
    const left = Math.min(event.pageX + 14, scrollX + document.documentElement.clientWidth - box.offsetWidth - 8);
    box.style.left = `${Math.max(scrollX + 4, left)}px`;
    box.style.top = `${event.pageY + 14}px`;
  };

  const draw = async (figure, box) => {
    const answer = await fetch(figure.dataset.chart);
    if (!answer.ok) return;
    const spec = await answer.json();
    const narrow = figure.clientWidth < NARROW;
    // The plot has what axis and legend leave, however long the names of the variants are.
    spec.width = Math.max(260, Math.floor(figure.clientWidth));
    spec.autosize = {type: "fit-x", contains: "padding"};
    if (narrow) for (const legend of legendsOf(spec)) Object.assign(legend, {orient: "bottom", columns: 1});
    const chart = document.createElement("div");
    // Expressions are interpreted: the policy of the page allows no code made of text.
    await vegaEmbed(chart, spec, {
      mode: "vega-lite", actions: false, ast: true, renderer: "canvas",
      defaultStyle: false, tooltip: tooltip(box),
    });
    chart.setAttribute("aria-hidden", "true");
    figure.querySelector(".chart")?.remove();
    chart.className = "chart";
    figure.querySelector("img").classList.add("quiet");
    figure.querySelector("img").after(chart);
  };

  const figures = [...document.querySelectorAll("figure.trend[data-chart]")];
  if (!figures.length) return;
  const box = document.createElement("dl");
  box.className = "tip";
  box.hidden = true;
  document.body.append(box);
  const all = () => figures.forEach((figure) => draw(figure, box).catch(() => {}));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    all();
  });
  all();
})();
