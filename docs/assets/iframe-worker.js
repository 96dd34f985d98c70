// Search on pages that are opened as files. Browsers refuse workers there, so the theme's search
// worker runs in a hidden frame with the interface of a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const scope = frame.contentWindow;
      scope.importScripts = (...urls) =>
        urls.reduce((done, next) => done.then(() => this.load(scope, next)), Promise.resolve());
      scope.postMessage = (data) => this.deliver(this, data);
      this.load(scope, url).then(() => {
        this.scope = scope;
        this.waiting.forEach((data) => this.deliver(scope, data));
      });
    }

    load(scope, url) {
      return new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        scope.document.body.appendChild(script);
      });
    }

    deliver(target, data) {
      const message = new MessageEvent("message", { data });
      target.dispatchEvent(message);
      if (target === this && this.onmessage) this.onmessage(message);
    }

    postMessage(data) {
      if (this.scope) this.deliver(this.scope, data);
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
