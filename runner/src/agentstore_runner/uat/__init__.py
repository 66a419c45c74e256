"""The handler of `uat.quick-task`: checks of a web application in a browser and over HTTP."""
