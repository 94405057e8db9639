import { Whitelie } from "/whitelie.js";

// Without an experiment nothing is asked.
const { options, experiment, sticky } = JSON.parse(new URL(location).searchParams.get("orders"));
const client = new Whitelie(options);
window.client = client;
// Tests may come too late to see it in storage.
const look = () => {
  try {
    const name = Object.keys(localStorage).find((name) => name.startsWith("whitelie.report."));
    if (name) window.report = JSON.parse(localStorage.getItem(name));
  } catch {}
};

const fallback = { arm: "fallback" };
const choice = await client.decide(experiment, experiment ? { fallback, sticky } : { force: "forced" });
document.getElementById("headline").textContent = choice.arm;
const buy = document.getElementById("buy");
buy.addEventListener("click", () => {
  choice.reward(1);
  look();
  buy.textContent = "Bought";
});
look();
document.body.dataset.shown = "";
