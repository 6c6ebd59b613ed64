#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/results/object.hpp"

namespace millrace {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// The colour of a class, the same in every run: seven hues that remain apart for colour-blind eyes (Okabe and Ito,
/// "Color Universal Design", 2008), then these lighter, then darker; classes 21 apart share one.
Colour class_colour(int class_id);

/// Contrast ratio of two colours, 1 to 21 (WCAG 2.1, "contrast ratio" and "relative luminance").
double contrast_ratio(Colour a, Colour b);

/// Black or white, whichever stands out more on `plate`: a ratio of 4.58 at least, whatever the plate.
Colour text_colour(Colour plate);

/// An object's box in pixels of the raster: inside it, and at least one pixel large.
struct OverlayBox {
  int left = 0, top = 0, right = 0, bottom = 0;
};
OverlayBox overlay_box(const Object& object, int raster_width, int raster_height, int reduction);

/// max(12 px, 1.5 % of the longer side): from the top of a capital to the lowest end of a "g".
int overlay_font_height(int width, int height);

/// The text of an object's label, in the characters that can be drawn: Latin letters lose their marks; a name with
/// other letters is replaced by its class number.
std::string label_text(const Object& object);

/// Where a label stands, in pixels of the raster.
struct OverlayLabel {
  std::size_t object = 0;                   ///< index
  int x = 0, y = 0, width = 0, height = 0;  ///< the plate
  std::string text;                         ///< name and score; a long name is cut with ".."
};

/// Places for the labels of the 300 best-scoring objects, best first: at a corner of the box, inside the picture, not
/// over the plate of a better one if one of twelve places is free, else where it covers the least. A label that would
/// cover more than a quarter of the picture is left out. `reduction` is picture pixels per raster pixel.
std::vector<OverlayLabel> place_labels(int raster_width, int raster_height, int reduction,
                                       std::span<const Object> objects);

/// Draws masks (translucent, with an outline), boxes and labels into the raster; what scores higher lies on top. `info`
/// is the raster's: a reduced one gets what belongs to the full picture at its scale. Throws std::invalid_argument for
/// a mask that does not have the picture's size.
void draw_overlay(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects);

}  // namespace millrace
