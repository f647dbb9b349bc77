// Says why the page's modules don't start; this is none.

addEventListener("load", () => {
  const find = (id) => document.getElementById(id);
  if (find("source").oninput) return;
  find("loading").hidden = true;
  find("error").textContent =
    location.protocol === "file:"
      ? "A browser can't load the model from a file. In this folder, run “python -m http.server”," +
        " and open http://localhost:8000."
      : "The page can't start: is the browser older than 2024, or a script missing or not JavaScript?";
});
