// Browsers load no module from a file; this is not one.

addEventListener("DOMContentLoaded", () => {
  if (location.protocol !== "file:") return;
  document.getElementById("loading").hidden = true;
  document.getElementById("error").textContent =
    "A browser can't load the model from a file. In this folder, run “python -m http.server”," +
    " and open http://localhost:8000.";
});
