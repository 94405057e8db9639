document.querySelector("iframe").src = `shop.html${location.search}`;
